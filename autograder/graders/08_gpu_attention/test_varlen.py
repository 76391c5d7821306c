"""varlen_attention: out against the reference, all else in the submission's own numbers."""

import numpy as np
from softmark.plugin import item


def offsets(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("varlen.out", depends="batched.out")
def test_out(script, agree, draw):
    """Attention within each sequence."""
    run = script()
    for lengths, h, d in (([4, 1, 6, 3], 2, 5), ([3], 3, 2), ([1, 1], 1, 4), ([2, 7], 2, 1)):
        q, k, v = draw(3, sum(lengths), h, d)
        run.call("varlen_attention", q, k, v, offsets(lengths))
    q, k, v = draw(3, 7, 2, 3)
    run.call("varlen_attention", q, k, v, offsets([5, 2]), causal=False)
    agree(run)


@item("varlen.causal", depends=("varlen.out", "batched.causal"))
def test_causal(script, student, draw):
    """A token gets what the tokens of its sequence up to itself give alone."""
    run = script()
    lengths = [4, 1, 3]
    starts = offsets(lengths)
    q, k, v = draw(3, 8, 2, 3)
    whole = run.call("varlen_attention", q, k, v, starts, True)
    done = []
    for start, length in zip(starts, lengths, strict=False):
        for i in range(length):
            part = slice(start, start + i + 1)
            alone = run.call("varlen_attention", q[part], k[part], v[part], offsets([i + 1]))
            done.append((start + i, alone))
    trace = student(run)
    for token, alone in done:
        assert np.any(trace[alone]), "out is 0 everywhere."
        assert near(trace[whole][token], trace[alone][-1]), (
            "With causal, a token does not get what the tokens of its own sequence up to itself give."
        )


@item("varlen.empty", depends="varlen.out")
def test_sequences_without_a_token(script, student, draw):
    """They change nothing, wherever they stand; alone, they give nothing."""
    run = script()
    q, k, v = draw(3, 7, 2, 3)
    done = []
    for causal in (False, True):
        some = run.call("varlen_attention", q, k, v, offsets([4, 3]), causal)
        for lengths in ([0, 4, 3], [4, 0, 0, 3], [4, 3, 0]):
            done.append((run.call("varlen_attention", q, k, v, offsets(lengths), causal), some))
    run.call("varlen_attention", q[:0], k[:0], v[:0], offsets([0, 0]))
    trace = student(run)
    for one, two in done:
        assert np.any(trace[two]), "out is 0 everywhere."
        assert near(trace[one], trace[two]), "out changes with sequences that have no token."
