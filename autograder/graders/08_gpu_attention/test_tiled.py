"""tiled_attention: out and lse against the reference, all else in the submission's own numbers."""

import numpy as np
from softmark.plugin import item

NAMES = ("out", "lse")
# N, h, Tq, Tk, d, block_q, block_k: every block is full.
SIZES = [
    (2, 3, 8, 12, 5, 4, 3),
    (3, 2, 6, 4, 7, 2, 4),
    (1, 2, 4, 9, 2, 4, 3),
    (2, 1, 2, 6, 3, 1, 2),
    (2, 2, 1, 6, 4, 1, 1),
    (2, 2, 6, 1, 3, 3, 1),
    (1, 1, 4, 4, 1, 2, 2),
]


def drawn(draw, N, h, Tq, Tk, d):
    """q, k and v."""
    return draw(N, h, Tq, d), draw(N, h, Tk, d), draw(N, h, Tk, d)


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


def full_blocks(run, draw):
    """Calls in which every block is full."""
    for *size, block_q, block_k in SIZES:
        run.call("tiled_attention", *drawn(draw, *size), False, block_q, block_k)
    q, k, v = drawn(draw, 2, 1, 6, 8, 5)
    run.call("tiled_attention", q, k, v, causal=False, block_q=3, block_k=4)
    run.call("tiled_attention", *drawn(draw, 1, 2, 64, 128, 3))


@item("tiled.out", draws="full")
def test_out(script, agree, draw):
    """The values, weighted by the softmax of q · k / √d over all keys."""
    run = script()
    full_blocks(run, draw)
    agree(run, only="out")


@item("tiled.lse", depends="tiled.out", draws="full")
def test_lse(script, agree, draw):
    """The logarithm of the sum of the exponentials of all scores."""
    run = script()
    full_blocks(run, draw)
    agree(run, only="lse")


@item("tiled.rest", depends=("tiled.out", "tiled.lse"))
def test_lengths_that_blocks_do_not_divide(script, student, draw):
    """The same as with blocks that divide them."""
    run = script()
    done = []
    for Tq, Tk, uneven, even, causal in (
        (1, 1, (16, 24), (1, 1), False),
        (63, 65, (16, 24), (21, 13), False),
        (65, 63, (64, 16), (65, 21), False),
        (65, 130, (), (13, 65), False),  # 64 and 64
        (7, 5, (3, 2), (7, 5), False),
        (2, 3, (4, 5), (2, 3), False),
        (9, 11, (4, 3), (9, 11), True),
    ):
        given = drawn(draw, 2, 1, Tq, Tk, 3)
        one = run.call("tiled_attention", *given, causal, *uneven)
        done.append((Tq, Tk, uneven, one, run.call("tiled_attention", *given, causal, *even)))
    trace = student(run)
    for Tq, Tk, uneven, *pair in done:
        for name, one, two in zip(NAMES, *pair, strict=True):
            assert np.any(trace[two]), f"{name} is 0 everywhere."
            assert near(trace[one], trace[two]), (
                f"With {Tq} queries and {Tk} keys, {name} is not the same in blocks of "
                f"{uneven or (64, 64)} as in blocks that divide them."
            )


@item("tiled.causal", depends=("tiled.out", "tiled.lse"))
def test_causal(script, student, draw):
    """As each query gives by itself, with the keys that it may see and no others."""
    run = script()
    done = []
    for Tq, Tk, block_q, block_k in ((6, 6, 2, 3), (4, 9, 4, 3), (6, 8, 3, 2), (8, 4, 2, 2)):
        q, k, v = drawn(draw, 2, 1, Tq, Tk, 3)
        whole = run.call("tiled_attention", q, k, v, True, block_q, block_k)
        for i in range(max(0, Tq - Tk), Tq):
            seen = i + 1 + Tk - Tq
            given = q[:, :, i : i + 1], k[:, :, :seen], v[:, :, :seen]
            alone = run.call("tiled_attention", *given, False, 1, seen)
            done.append((Tq, Tk, i, whole, alone))
    trace = student(run)
    for Tq, Tk, i, *pair in done:
        for name, whole, alone in zip(NAMES, *pair, strict=True):
            assert np.any(trace[alone]), f"{name} is 0 everywhere."
            assert near(trace[whole][:, :, i], trace[alone][:, :, 0]), (
                f"With {Tq} queries, {Tk} keys and causal, {name} of query {i} is not what it gets from "
                f"the keys 0 to {i + Tk - Tq} alone."
            )


@item("tiled.empty", depends="tiled.causal")
def test_queries_that_see_no_key(script, student, draw):
    """Out is exactly 0 and lse -inf there, and as before for every other query."""
    run = script()
    done = []
    for Tq, Tk, block_q, block_k in ((8, 4, 2, 2), (6, 4, 3, 4), (3, 1, 1, 1)):
        q, k, v = drawn(draw, 2, 2, Tq, Tk, 5)
        whole = run.call("tiled_attention", q, k, v, True, block_q, block_k)
        rest = run.call("tiled_attention", q[:, :, Tq - Tk :], k, v, True, 1, block_k)
        done.append((Tq - Tk, whole, rest))
    trace = student(run)
    for empty, (out, lse), rest in done:
        assert np.isfinite(trace[out]).all(), "out is not finite where a query sees no key."
        assert not np.any(trace[out][:, :, :empty]), (
            "out must be exactly 0 where a query sees no key."
        )
        assert np.all(trace[lse][:, :, :empty] == -np.inf), "lse must be -inf for no key."
        for name, one, two in zip(NAMES, (out, lse), rest, strict=True):
            assert np.any(trace[two]), f"{name} is 0 everywhere."
            assert near(trace[one][:, :, empty:], trace[two]), (
                f"{name} is another for queries that see some keys, where others see none."
            )


@item("tiled.stable", depends=("tiled.out", "tiled.lse"))
def test_large_scores(script, student, draw):
    """In whichever order the keys come, and with all scores raised or lowered alike."""
    run = script()
    q, k, v = drawn(draw, 2, 1, 4, 12, 3)
    ones = np.ones((2, 1, 12, 1))

    def ask(raised, along, order=1):
        """Scores raised by ``raised``, for each query, times ``along``, for each key."""
        queries = np.concatenate([q[..., :2], np.ones((2, 1, 4, 1)) * raised], axis=-1)
        keys = np.concatenate([k[..., :2], ones * along], axis=-1)
        given = queries, keys[:, :, ::order].copy(), v[:, :, ::order].copy()
        return run.call("tiled_attention", *given, False, 2, 3)

    of_each = 1e3 * draw.rng.permuted(np.arange(-4.0, 4.0)).reshape(2, 1, 4, 1)
    plain, alike = ask(0.0, 1.0), [ask(raised, 1.0) for raised in (4e3, -4e3, of_each)]
    places = np.arange(12.0)[:, None]
    orders = [[ask(1e3, step * places, order) for order in (1, -1)] for step in (1e-3, 0.5)]
    trace = student(run)
    for out, _ in alike:
        assert near(trace[out], trace[plain[0]]), (
            "out is not the same where all scores of a query are raised or lowered by some 1e3."
        )
    for rising, falling in orders:
        for name, one, two in zip(NAMES, rising, falling, strict=True):
            assert np.isfinite(trace[one]).all(), f"{name} is not finite for scores of some 1e3."
            assert near(trace[one], trace[two]), (
                f"{name} is not the same for keys in which scores of some 1e3 rise, and fall."
            )
