"""masked_softmax: values, masks, rows with nothing to attend to, gradients, and large scores."""

import numpy as np
from softmark.plugin import item

SHAPES = [(3, 5), (2, 4, 3), (2, 3, 2, 4), (6,), (1, 4), (4, 1), (1, 1)]
# Shapes of scores and of masks that broadcast to them.
MASKED = [
    ((3, 5), (3, 5)),
    ((2, 4, 3), (2, 1, 3)),
    ((2, 4, 3), (3,)),
    ((2, 3, 4), (3, 4)),
    ((3, 4), (3, 1)),
    ((5,), (5,)),
    ((2, 1), (2, 1)),
]


def masks(draw, shape):
    """A mask with a True in every row and, where there is room for it, a False."""
    mask = draw.rng.random(shape) < 0.6
    np.put_along_axis(mask, draw.rng.integers(shape[-1], size=(*shape[:-1], 1)), True, -1)
    if shape[-1] > 1:
        np.put_along_axis(mask, mask.argmin(-1, keepdims=True), False, -1)
        np.put_along_axis(mask, mask.argmax(-1, keepdims=True), True, -1)
    return mask


def hidden_scores(draw, scores, mask):
    """Scores with other numbers where the mask is False: larger ones than any beside them, up to 1e4."""
    mask = np.broadcast_to(mask, scores.shape)
    return np.where(mask, scores, draw.rng.choice([-1e4, 5.0, 1e4], scores.shape))


@item("softmax.values")
def test_values(script, agree, draw):
    """Softmax over the last axis, without a mask, and with one that is True everywhere."""
    run = script()
    for shape in SHAPES:
        run.call("masked_softmax", 2 * draw(*shape))
    run.call("masked_softmax", draw(3, 4), None)
    run.call("masked_softmax", draw(3, 4), np.ones((3, 4), dtype=bool))
    agree(run)


@item("softmax.mask", depends="softmax.values")
def test_masks(script, agree, draw):
    """Exactly 0 behind the mask whatever stands there; the others as if they were alone."""
    run = script()
    for shape, of_mask in MASKED:
        mask = masks(draw, of_mask)
        run.call("masked_softmax", hidden_scores(draw, 2 * draw(*shape), mask), mask)
    agree(run)


@item("softmax.empty", depends=("softmax.values", "softmax.mask"))
def test_rows_with_nothing_to_attend_to(script, agree, draw):
    """No True in the mask, or all allowed scores -inf: the whole row is 0, and no other row."""
    run = script()
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool)
    run.call("masked_softmax", 2 * draw(3, 4), mask)
    run.call("masked_softmax", 2 * draw(2, 3, 4), mask)
    run.call("masked_softmax", draw(2, 3), np.zeros((2, 3), dtype=bool))
    run.call("masked_softmax", draw(2, 1), np.array([[True], [False]]))
    scores = 2 * draw(4, 3)
    scores[1] = scores[2, 1:] = -np.inf
    run.call("masked_softmax", scores)
    run.call("masked_softmax", scores, np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 0]]) > 0)
    agree(run)


@item("softmax.gradient", depends=("softmax.values", "softmax.mask", "softmax.empty"))
def test_gradient(script, student, draw):
    """The gradient that belongs to the submission's own weights: p (g - sum p g), and 0 elsewhere."""
    run = script()
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1]], dtype=bool)
    # a softmax that looks behind the mask must not lose all its weight there: only in the last row
    scores = np.where(mask, 2 * draw(4, 4), [[1.5], [5.0], [0.0], [1e4]])
    scores[3, 3] = -np.inf
    minus = 2 * draw(2, 4)
    minus[0] = -np.inf
    minus[1, 2] = -np.inf
    done = []
    for given, *of_mask in ((2 * draw(3, 5),), (scores, mask), (minus,)):
        tensor = run.tensor("scores", given)
        weights = run.call("masked_softmax", tensor, *of_mask)
        upstream = draw(*given.shape)
        run.backward((weights, upstream))
        done.append((given, weights, upstream, run.gradient(tensor)))
    trace = student(run)
    for given, weights, upstream, gradient in done:
        p, found = trace[weights], trace[gradient]
        p = np.where(np.isfinite(p), p, 0)  # weights that are NaN are another item's
        assert np.isfinite(found).all(), "The gradient of scores is not finite."
        due = p * (upstream - (p * upstream).sum(-1, keepdims=True))
        assert np.allclose(found, due, 1e-8, 1e-10), (
            "The gradient of scores does not belong to the weights that come out."
        )
        assert np.any(found), "The gradient of scores is 0 everywhere."
        if given is not scores:
            continue
        assert not np.any(found[~mask]), "The gradient of scores must be 0 behind the mask."


@item("softmax.stable", depends=("softmax.values", "softmax.mask"))
def test_large_scores(script, agree, draw):
    """Scores of ±1e4 in rows of very different size, and -inf among finite ones."""
    run = script()
    large = np.array([[1e4, 1e4 - 1, -1e4], [-1e4, -1e4 + 2, -1e4 + 1], [0.3, -1.0, 0.9]])
    run.call("masked_softmax", large)
    run.call("masked_softmax", -large)
    run.call("masked_softmax", large.reshape(3, 1, 3), np.array([[False, True, True]]))
    scores = 2 * draw(3, 4)
    scores[0, 1] = scores[2, 2] = scores[2, 0] = -np.inf
    run.call("masked_softmax", scores)
    run.call("masked_softmax", 1e4 + draw(2, 5))
    agree(run)
