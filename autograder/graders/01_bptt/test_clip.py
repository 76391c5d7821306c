"""One factor for all gradients, from their common norm."""

import re

import numpy as np
import pytest
from softmark.plugin import item

SHAPES = {"W_xh": (3, 5), "W_hh": (5, 5), "b_h": (5,), "embedding": (7, 3)}


def gradients(draw, size=1.0):
    """Arrays of unequal norms, which together have about the norm ``size``."""
    scales = (1.0, 0.1, 3.0, 0.3)
    arrays = {
        name: scale * draw(*shape)
        for (name, shape), scale in zip(SHAPES.items(), scales, strict=True)
    }
    norm = np.sqrt(sum((a**2).sum() for a in arrays.values()))
    return {name: size * a / norm for name, a in arrays.items()}


def clipped(run, draw):
    """Norms above max_norm, far below it, a little below it, 0; and one array alone."""
    for size, max_norm in [(7.0, 2.0), (100.0, 0.5), (0.3, 5.0), (0.99, 1.0), (1e-9, 1e-12)]:
        run.call("clip_by_global_norm", gradients(draw, size), max_norm)
    run.call("clip_by_global_norm", {name: np.zeros(shape) for name, shape in SHAPES.items()}, 2.0)
    run.call("clip_by_global_norm", {"a": draw(4, 2, 3)}, 1)
    run.call("clip_by_global_norm", {"a": np.array([-3.0, 0.0]), "b": np.array([[-4.0]])}, 5.0)
    return run


@item("clip.{output}", draws="clip")
@pytest.mark.parametrize("output", ["norm", "arrays"])
def test_clipping(script, agree, draw, output):
    """The norm before clipping; and the same factor everywhere, 1 where nothing is to be clipped."""
    agree(clipped(script(), draw), only={"norm": "norm", "arrays": "clipped"}[output])


@item("clip.errors", claim=True)
def test_gradients_of_0(script, student):
    """No warning where the norm is 0."""
    run = script()
    run.call("clip_by_global_norm", {name: np.zeros(shape) for name, shape in SHAPES.items()}, 2.0)
    warned = [w for w in student(run).warnings if w.category == "RuntimeWarning"]
    assert not warned, f"clip_by_global_norm warns where all gradients are 0: {warned[0].message}."


@item("clip.errors")
@pytest.mark.parametrize("max_norm", [0.0, -1.0])
def test_max_norm_not_above_0(script, student, draw, max_norm):
    """ValueError that names max_norm; a small one above 0 is none."""
    run = script()
    given = gradients(draw)
    one, _ = run.call("clip_by_global_norm", given, 1e-3)
    other, _ = run.call("clip_by_global_norm", {k: a + 1 for k, a in given.items()}, 1e-3)
    run.raises("clip_by_global_norm", given, max_norm)
    trace = student(run)
    assert re.search(r"\bmax_norm\b", trace.raised.message), (
        "The ValueError of clip_by_global_norm should name the argument at fault, max_norm."
    )
    assert any(not np.allclose(trace[one][k], trace[other][k], 1e-9, 0) for k in given), (
        "clip_by_global_norm ignores grads."
    )
