"""What a new cell holds: keys, shapes, biases, and the spread of W."""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

SIZES = [(5, 3), (2, 7), (1, 1)]


@item("cell.params")
def test_keys_and_shapes(script, student):
    """params and grads hold W (D + H, 4 H) and b (4 H,); the gradients start at zero."""
    run = script()
    grads = []
    for D, H in SIZES:
        cell = run.new("LSTMCell", D, H, Rng(1))
        run.read(cell.params)
        grads.append(run.read(cell.grads))
    trace = student(run)
    for read in grads:
        zero = not any(np.any(grad) for grad in trace[read].values())
        assert zero, "The gradients of a new cell must be zeros."


@item("cell.bias", depends="cell.params")
def test_forget_bias(script, agree):
    """b is 0 but for the forget block, which is forget_bias: 1 by default, else as given."""
    run = script()
    for D, H in SIZES:
        run.read(run.new("LSTMCell", D, H, Rng(2)).params)
        run.read(run.new("LSTMCell", D, H, Rng(2), 2.5).params)
        run.read(run.new("LSTMCell", D, H, Rng(2), forget_bias=0.0).params)
    agree(run, only='params["b"]')


@item("cell.weights", depends="cell.params")
def test_spread_of_weights(script, student, draw):
    """W is N(0, 2 / (D + H)) in each part: mean, variance and shape, at 7 standard errors."""
    D, H = 60, 24
    run = script()
    params = run.read(run.new("LSTMCell", D, H, Rng(int(draw.rng.integers(2**31)))).params)
    W = student(run)[params]["W"]
    scale = np.sqrt(2 / (D + H))
    parts = {"the rows of x": W[:D], "the rows of h_prev": W[D:]}
    parts |= {f"block {g}": W[:, k * H : (k + 1) * H] for k, g in enumerate("fico")}
    for where, part in parts.items():
        z = part / scale
        assert abs(z.mean()) < 7 / np.sqrt(z.size), f"The mean of W is not 0 in {where}."
        assert abs((z**2).mean() - 1) < 7 * np.sqrt(2 / z.size), (
            f"The variance of W is {(part**2).mean():.2g} in {where}; "
            f"for D = {D}, H = {H} it should be near 2 / (D + H) = {scale**2:.2g}."
        )
        inside = (np.abs(z) < 1).mean()  # 0.683 for a normal, 0.577 for a uniform of that variance
        assert abs(inside - 0.6827) < 7 * np.sqrt(0.2166 / z.size), (
            f"W has the right variance in {where}, but it is not normally distributed."
        )
    assert np.unique(W).size > 0.99 * W.size, "Many entries of W are equal: draw each one anew."


@item("cell.weights", depends="cell.params")
def test_weights_come_from_rng(script, student):
    """The same rng gives the same W, another rng another W: nothing comes from elsewhere."""
    run = script()
    first, again, other = (
        run.read(run.new("LSTMCell", 3, 2, Rng(seed)).params) for seed in (5, 5, 6)
    )
    trace = student(run)
    assert np.array_equal(trace[first]["W"], trace[again]["W"]), (
        "Two cells made with the same rng differ: draw W from the rng you are given."
    )
    assert not np.array_equal(trace[first]["W"], trace[other]["W"]), (
        "Cells made with different rngs have the same W: draw W from the rng you are given."
    )
