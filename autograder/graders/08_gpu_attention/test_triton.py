"""triton_attention in Triton's interpreter: float32, against the reference's kernel."""

from softmark.plugin import item


def calls(run, draw, causal, sizes):
    """Of sizes (N, h, Tq, Tk, d)."""
    for N, h, Tq, Tk, d in sizes:
        q, k, v = (draw(N, h, T, d).astype("float32") for T in (Tq, Tk, Tk))
        run.call("triton_attention", q, 3 * k, v, causal)
    return run


@item("triton.values")
def test_values(script, agree, draw):
    """Lengths that no block divides, of one block and of several, and d that is no power of 2."""
    sizes = [(1, 2, 37, 150, 20), (2, 1, 70, 5, 64), (1, 1, 1, 1, 1)]
    agree(calls(script(), draw, False, sizes))


@item("triton.causal", depends="triton.values")
def test_causal(script, agree, draw):
    """As many queries as keys, fewer, and more, where the first see no key."""
    sizes = [(1, 1, 75, 75, 20), (1, 1, 40, 130, 16), (1, 1, 150, 70, 16)]
    agree(calls(script(), draw, True, sizes))
