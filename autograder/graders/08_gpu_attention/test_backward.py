"""tiled_attention_backward under torch.no_grad(): against the reference, the rest in its own numbers."""

import numpy as np
import pytest
from softmark.plugin import item

NAMES = ("dq", "dk", "dv")
# N, h, Tq, Tk, d, block_q, block_k: every block is full.
SIZES = [
    (2, 3, 8, 12, 5, 4, 3),
    (3, 2, 6, 4, 7, 2, 4),
    (1, 2, 4, 9, 2, 4, 3),
    (2, 1, 2, 6, 3, 1, 2),
    (2, 2, 1, 6, 4, 1, 1),
    (2, 2, 6, 2, 3, 3, 1),
    (1, 1, 4, 4, 1, 2, 2),
]


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


def drawn(draw, N, h, Tq, Tk, d, causal=False):
    """dout, q, k, v, and the right out and lse."""
    dout, q, k, v = draw(N, h, Tq, d), draw(N, h, Tq, d), *draw(2, N, h, Tk, d)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(d)
    if causal:
        scores[..., ~np.tri(Tq, Tk, Tk - Tq, dtype=bool)] = -np.inf
    e = np.exp(scores)
    total = e.sum(-1)
    with np.errstate(divide="ignore"):
        lse = np.log(total)
    return dout, q, k, v, e @ v / np.where(total, total, 1)[..., None], lse


@item("backward.{gradient}", draws="full")
@pytest.mark.parametrize("gradient", ["dv", "dq", "dk"])
def test_gradients(script, agree, draw, gradient):
    """Each gradient, without a mask, where blocks divide the lengths."""
    run = script()
    run.no_grad()
    for *size, block_q, block_k in SIZES:
        run.call("tiled_attention_backward", *drawn(draw, *size), False, block_q, block_k)
    blocks = {"block_q": 3, "block_k": 4}
    run.call("tiled_attention_backward", *drawn(draw, 2, 1, 6, 8, 5), causal=False, **blocks)
    run.call("tiled_attention_backward", *drawn(draw, 1, 2, 64, 128, 3))
    agree(run, only=gradient)


@item("backward.causal", depends=("backward.dv", "backward.dq", "backward.dk"))
def test_query_by_query(script, student, draw):
    """As each query gives by itself, with the keys that it may see and no others."""
    run = script()
    run.no_grad()
    done = []
    for Tq, Tk, block_q, block_k in ((6, 6, 2, 3), (4, 9, 4, 3), (8, 4, 2, 2)):
        given = dout, q, k, v, out, lse = drawn(draw, 2, 1, Tq, Tk, 3, causal=True)
        whole = run.call("tiled_attention_backward", *given, True, block_q, block_k)
        due = [np.zeros_like(x) for x in (q, k, v)]
        alone = []
        for i in range(max(0, Tq - Tk), Tq):
            row, seen = slice(i, i + 1), i + 1 + Tk - Tq
            part = dout[:, :, row], q[:, :, row], k[:, :, :seen], v[:, :, :seen]
            part = *part, out[:, :, row], lse[:, :, row]
            alone.append((row, seen, run.call("tiled_attention_backward", *part, False, 1, seen)))
        done.append((max(0, Tq - Tk), whole, due, alone))
    trace = student(run)
    for empty, whole, due, alone in done:
        for row, seen, (dq, dk, dv) in alone:
            due[0][:, :, row] = trace[dq]
            due[1][:, :, :seen] += trace[dk]
            due[2][:, :, :seen] += trace[dv]
        for name, handle, sums in zip(NAMES, whole, due, strict=True):
            assert np.any(sums), f"{name} is 0 everywhere."
            assert np.isfinite(trace[handle]).all(), f"{name} is not finite with causal."
            assert near(trace[handle], sums), (
                f"With causal, {name} is not made of what each query gives with the keys it may see."
            )
        assert not np.any(trace[whole[0]][:, :, :empty]), (
            "dq must be exactly 0 where a query sees no key."
        )


@item("backward.rest", depends=("backward.dv", "backward.dq", "backward.dk"))
def test_lengths_that_blocks_do_not_divide(script, student, draw):
    """The same as with blocks that divide them."""
    run = script()
    run.no_grad()
    done = []
    for Tq, Tk, uneven, even in (
        (1, 2, (16, 24), (1, 2)),
        (33, 65, (16, 24), (11, 13)),
        (65, 130, (), (13, 65)),  # 64 and 64
        (7, 5, (3, 2), (7, 5)),
    ):
        given = drawn(draw, 2, 1, Tq, Tk, 3)
        one = run.call("tiled_attention_backward", *given, False, *uneven)
        two = run.call("tiled_attention_backward", *given, False, *even)
        done.append((Tq, Tk, uneven, one, two))
    trace = student(run)
    for Tq, Tk, uneven, *pair in done:
        for name, one, two in zip(NAMES, *pair, strict=True):
            assert np.any(trace[two]), f"{name} is 0 everywhere."
            assert near(trace[one], trace[two]), (
                f"With {Tq} queries and {Tk} keys, {name} is not the same in blocks of "
                f"{uneven or (64, 64)} as in blocks that divide them."
            )
