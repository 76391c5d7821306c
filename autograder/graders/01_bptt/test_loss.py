"""Cross-entropy over the real targets of a batch, and its gradient."""

import numpy as np
import pytest
from softmark.plugin import item

# (N, T, K). Sizes that all differ, K above and below T, then each of them 1.
SIZES = [(3, 4, 6), (4, 6, 3), (1, 5, 4), (5, 1, 3), (3, 4, 1), (1, 1, 2), (2, 3, 40)]


def batch(draw, N, T, K, scale=2.0, behind=30.0):
    """Logits, targets and a mask with holes and an empty row, but never empty itself.

    Behind the mask stand other logits, and targets that are no class.
    """
    mask = draw.rng.random((N, T)) < 0.6
    if N > 2:
        mask[1] = False
    mask[0, T // 2] = True
    logits = np.where(mask[..., None], scale * draw(N, T, K), behind * draw(N, T, K))
    targets = draw.rng.integers(K, size=(N, T))
    none = np.array([-100, -1, 10**6])[np.arange(N * T) % 3].reshape(N, T)
    return logits, np.where(mask, targets, none), mask


@item("loss.{output}", draws="loss")
@pytest.mark.parametrize("output", ["value", "dlogits"])
def test_loss(script, agree, draw, output):
    """A mean over the real targets only, and its gradient, which is 0 where there is none."""
    run = script()
    for sizes in SIZES:
        run.call("sequence_cross_entropy", *batch(draw, *sizes))
    logits, targets, _ = batch(draw, 3, 5, 4)
    real = np.ones((3, 5), bool)  # every target is real
    run.call("sequence_cross_entropy", logits, targets % 4, real)
    agree(run, only={"value": "loss", "dlogits": "dlogits"}[output])


@item("loss.empty")
def test_no_real_target(script, agree, draw):
    """Where no target is real, 0.0 and zeros; not NaN. With one real target it is another matter."""
    run = script()
    for N, T, K in [(3, 2, 4), (1, 1, 1)]:
        targets = np.full((N, T), -100)
        run.call("sequence_cross_entropy", draw(N, T, K), targets, np.zeros((N, T), bool))
    agree(run)


@item("loss.empty")
def test_one_real_target(script, student, draw):
    """A loss that is alive, so that zeros for everything earn nothing."""
    run = script()
    logits, targets, mask = draw(2, 3, 4), np.full((2, 3), 1), np.zeros((2, 3), bool)
    mask[1, 2] = True
    loss, dlogits = run.call("sequence_cross_entropy", logits, targets, mask)
    trace = student(run)
    assert abs(trace[loss]) > 1e-6, "The loss is 0 with a real target too."
    assert np.abs(trace[dlogits]).max() > 1e-6, "dlogits is 0 with a real target too."


@item(
    "loss.stable",
    depends=("loss.value", "loss.dlogits"),
    requires=("loss.value", "loss.dlogits"),
    claim=True,
)
def test_far_out(script, agree, student, draw):
    """Logits of ±1e4, behind the mask too: the exact values, and no warning."""
    run = script()
    for N, T, K in [(3, 4, 5), (2, 1, 3)]:
        run.call("sequence_cross_entropy", *batch(draw, N, T, K, behind=1e4))
        far = draw.rng.choice([-1e4, 1e4], size=(N, T, K))
        targets = draw.rng.integers(K, size=(N, T))
        for logits in (far, np.full((N, T, K), -1e4), np.full((N, T, K), 1e4), 1e3 * draw(N, T, K)):
            run.call("sequence_cross_entropy", logits, targets, np.ones((N, T), bool))
    agree(run)
    overflow = [w for w in student(run).warnings if w.category == "RuntimeWarning"]
    assert not overflow, (
        f"sequence_cross_entropy warns for large logits: {overflow[0].message}. "
        "Take exp only of numbers that are not positive, and log only of their sum."
    )
