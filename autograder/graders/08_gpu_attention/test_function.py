"""TiledAttention: out in the submission's own numbers, gradients against the reference."""

import numpy as np
from softmark.plugin import item


def drawn(draw, N, h, Tq, Tk, d):
    """q, k and v."""
    return draw(N, h, Tq, d), draw(N, h, Tk, d), draw(N, h, Tk, d)


@item("function.out", depends="tiled.out")
def test_out(script, student, draw):
    """The out of tiled_attention, with the same arguments, and without the last ones."""
    run = script()
    made = run.new("TiledAttention")
    done = []
    for *size, more in (
        (1, 2, 64, 128, 3, ()),
        (2, 1, 64, 128, 2, (True,)),
        (1, 1, 64, 64, 2, (True, 32)),
        (2, 3, 4, 9, 3, (True, 2, 3)),
        (3, 2, 6, 4, 5, (False, 3, 2)),
    ):
        given = *drawn(draw, *size), *more
        done.append((made.apply(*given), run.call("tiled_attention", *given)[0]))
    trace = student(run)
    for one, two in done:
        assert np.any(trace[two]), "out is 0 everywhere."
        assert np.allclose(trace[one], trace[two], 1e-9, 1e-11), (
            "out is not that of tiled_attention for the same arguments."
        )


@item("function.gradients", depends=("tiled.out", "backward.dv", "backward.dq", "backward.dk"))
def test_gradients(script, agree, draw):
    """Of q, k and v, with and without causal, with and without blocks."""
    run = script()
    made = run.new("TiledAttention")
    for *size, more in (
        (2, 3, 8, 6, 5, (False, 4, 3)),
        (2, 1, 4, 9, 3, (True, 2, 3)),
        (1, 2, 64, 128, 2, (True,)),
        (2, 1, 128, 64, 3, ()),
    ):
        tensors = [run.tensor(name, x) for name, x in zip("qkv", drawn(draw, *size), strict=True)]
        out = made.apply(*tensors, *more)
        run.backward((out, draw(*size[:3], size[4])))
        for tensor in tensors:
            run.gradient(tensor)
    agree(run, only=("dq", "dk", "dv"))
