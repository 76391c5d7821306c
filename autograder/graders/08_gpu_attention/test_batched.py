"""batched_attention: out against the reference, all else in the submission's own numbers."""

import numpy as np
from softmark.plugin import item

# N, h, Tq, Tk, d. Sizes that all differ, then each of them 1.
SIZES = [
    (2, 3, 4, 5, 6),
    (3, 2, 5, 4, 7),
    (1, 2, 3, 4, 5),
    (2, 1, 4, 3, 2),
    (2, 3, 1, 4, 3),
    (3, 2, 4, 1, 5),
    (2, 3, 4, 5, 1),
]


def drawn(draw, N, h, Tq, Tk, d):
    """q, k and v."""
    return draw(N, h, Tq, d), draw(N, h, Tk, d), draw(N, h, Tk, d)


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("batched.out")
def test_out(script, agree, draw):
    """The values, weighted by the softmax of q · k / √d over the keys."""
    run = script()
    for size in SIZES:
        run.call("batched_attention", *drawn(draw, *size))
    run.call("batched_attention", *drawn(draw, *SIZES[0]), False)
    run.call("batched_attention", *drawn(draw, *SIZES[1]), causal=False)
    agree(run)


@item("batched.causal", depends="batched.out")
def test_causal(script, student, draw):
    """As each query gives by itself, with the keys that it may see and no others."""
    run = script()
    done = []
    for Tq, Tk in ((5, 5), (3, 6), (1, 4), (5, 3), (1, 1)):
        q, k, v = drawn(draw, 2, 3, Tq, Tk, 4)
        whole = run.call("batched_attention", q, k, v, causal=True)
        for i in range(max(0, Tq - Tk), Tq):
            seen = i + 1 + Tk - Tq
            given = q[:, :, i : i + 1], k[:, :, :seen], v[:, :, :seen]
            done.append((Tq, Tk, i, whole, run.call("batched_attention", *given)))
    trace = student(run)
    for Tq, Tk, i, whole, alone in done:
        assert np.any(trace[alone]), "out is 0 everywhere."
        assert near(trace[whole][:, :, i], trace[alone][:, :, 0]), (
            f"With {Tq} queries, {Tk} keys and causal, query {i} does not get what it gets from the "
            f"keys 0 to {i + Tk - Tq} alone."
        )


@item("batched.empty", depends="batched.causal")
def test_queries_that_see_no_key(script, student, draw):
    """Out is exactly 0 there, and as before for every other query."""
    run = script()
    done = []
    for Tq, Tk in ((6, 4), (3, 1)):
        q, k, v = drawn(draw, 2, 3, Tq, Tk, 5)
        whole = run.call("batched_attention", q, k, v, True)
        done.append((Tq - Tk, whole, run.call("batched_attention", q[:, :, Tq - Tk :], k, v, True)))
    trace = student(run)
    for empty, whole, rest in done:
        assert np.isfinite(trace[whole]).all(), "out is not finite where a query sees no key."
        assert not np.any(trace[whole][:, :, :empty]), (
            "out must be exactly 0 where a query sees no key."
        )
        assert np.any(trace[rest]), "out is 0 everywhere."
        assert near(trace[whole][:, :, empty:], trace[rest]), (
            "out is another for queries that see some keys, where others see none."
        )


@item("batched.stable", depends="batched.out")
def test_large_scores(script, student, draw):
    """All scores raised or lowered alike change nothing, and one far above the others takes all."""
    run = script()
    q, k, v = drawn(draw, 2, 3, 4, 5, 3)
    k[..., 2] = 1.0  # a score is raised by what stands last in q
    done = {causal: [] for causal in (False, True)}
    for raised in (0.0, 4e3, -4e3):
        lifted = np.concatenate([q[..., :2], np.full((2, 3, 4, 1), raised)], axis=-1)
        for causal, calls in done.items():
            calls.append(run.call("batched_attention", lifted, k, v, causal))
    far = np.broadcast_to(1e4 * np.arange(5.0)[:, None], (2, 3, 5, 3)).copy()
    last = run.call("batched_attention", np.abs(q) + 1.0, far, v)
    trace = student(run)
    for plain, *others in done.values():
        for other in others:
            assert near(trace[other], trace[plain]), (
                "out changes where all scores are raised or lowered alike, by some 1e3."
            )
    assert near(trace[last], v[:, :, -1:]), "A score 1e4 above the others should take all weight."
