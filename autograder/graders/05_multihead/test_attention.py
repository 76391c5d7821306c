"""Attention itself: weights against the reference, all else in the submission's own numbers."""

import numpy as np
from softmark.plugin import item

# Leading axes, Tq, Tk, d, dv. Sizes that all differ, then each of them 1.
SIZES = [
    ((2, 3), 4, 5, 6, 2),
    ((3,), 5, 4, 2, 6),
    ((), 3, 4, 5, 2),
    ((2, 1, 3), 2, 3, 4, 5),
    ((2,), 1, 4, 3, 2),
    ((2,), 4, 1, 3, 5),
    ((2,), 3, 4, 1, 2),
    ((1, 1), 2, 3, 4, 1),
]
# Shapes of masks for leading axes (2, 3), Tq = 4 and Tk = 5.
LEAD, TQ, TK, D, DV = (2, 3), 4, 5, 6, 2
# A True and a False in every row; whatever row 0 shuts out another one sees.
ROWS = np.array([[c == "1" for c in row] for row in ("01101", "10110", "11011", "00100")])
SHAPES = [(2, 3, 4, 5), (2, 1, 4, 5), (3, 4, 5), (2, 1, 1, 5), (3, 1, 5), (4, 5), (1, 5), (5,)]


def drawn(draw, lead, Tq, Tk, d, dv):
    """q, k and v."""
    return draw(*lead, Tq, d), draw(*lead, Tk, d), draw(*lead, Tk, dv)


def partial(draw, shape):
    """A mask with two True and a False in every row, at least."""
    mask = draw.rng.random(shape) < 0.5
    first = draw.rng.integers(shape[-1], size=(*shape[:-1], 1))
    for place, value in enumerate((True, True, False)):
        np.put_along_axis(mask, (first + place) % shape[-1], value, -1)
    return mask


def masked(run, draw):
    """Every shape of mask once, and the same without a mask."""
    q, k, v = drawn(draw, LEAD, TQ, TK, D, DV)
    plain = run.call("scaled_dot_product_attention", q, k, v)
    masks = [partial(draw, shape) for shape in SHAPES]
    return [
        (mask, run.call("scaled_dot_product_attention", q, k, v, mask), plain) for mask in masks
    ]


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("sdpa.weights")
def test_weights(script, agree, draw):
    """The softmax of q · k / √d over the keys."""
    run = script()
    for size in SIZES:
        run.call("scaled_dot_product_attention", *drawn(draw, *size))
    q, k, v = drawn(draw, *SIZES[1])
    run.call("scaled_dot_product_attention", q, k, v, None)
    agree(run, only="weights")


@item("sdpa.out", depends="sdpa.weights")
def test_out(script, student, draw):
    """The values, each times its own weight."""
    run = script()
    done = []
    for size in SIZES:
        q, k, v = drawn(draw, *size)
        done.append((v, *run.call("scaled_dot_product_attention", q, k, v)))
    q, k, v = drawn(draw, LEAD, TQ, TK, D, DV)
    mask = partial(draw, (TQ, TK))
    done.append((v, *run.call("scaled_dot_product_attention", q, k, v, mask)))
    trace = student(run)
    for v, out, weights in done:
        assert near(trace[out], trace[weights] @ v), (
            "out is not the sum of the values, each times its own weight."
        )
    assert np.any(trace[out]), "out is 0 everywhere."


@item("sdpa.rows", draws="masked")
def test_rows(script, student, draw):
    """No weight is below 0, and those of a row sum to 1."""
    run = script()
    done = masked(run, draw)
    trace = student(run)
    for _, found, plain in done:
        for what, (_, weights) in (("with a mask", found), ("without a mask", plain)):
            assert np.all(trace[weights] >= 0), f"Some weights are below 0, {what}."
            assert near(trace[weights].sum(-1), 1), (
                f"The weights of a query do not sum to 1 over the keys, {what}."
            )


@item("sdpa.mask", depends=("sdpa.weights", "sdpa.rows"), draws="masked")
def test_masks(script, student, draw):
    """Exactly 0 behind the mask; the others are to each other as they are without it."""
    run = script()
    done = masked(run, draw)
    trace = student(run)
    for mask, (_, weights), (_, plain) in done:
        allowed = np.broadcast_to(mask, trace[weights].shape)
        opposite = np.any(trace[weights][~allowed]) and not np.any(trace[weights][allowed])
        assert not opposite, "Only keys where the mask is False have weights: True means attend."
        assert not np.any(trace[weights][~allowed]), (
            f"With a mask of shape {mask.shape}, weights are not exactly 0 where it is False."
        )
        due = np.where(allowed, trace[plain], 0)
        assert near(trace[weights], due / due.sum(-1, keepdims=True)), (
            f"With a mask of shape {mask.shape}, the weights are not those that the allowed keys have "
            "without the others."
        )


@item("sdpa.mask", depends="sdpa.weights")
def test_nothing_is_heard_from_behind_the_mask(script, student, draw):
    """Whatever keys and values stand there, up to 1e4: not in out either."""
    run = script()
    q, k, v = drawn(draw, (3,), 4, 5, 2, 3)
    mask = np.array([[1, 1, 0, 0, 1], [0, 1, 0, 0, 0], [1, 0, 1, 1, 1]], dtype=bool)[:, None]
    shut = ~mask[:, 0, :, None]
    found = run.call("scaled_dot_product_attention", q, k, v, mask)
    loud = [np.where(shut, draw.rng.choice([-1e4, 1e4], a.shape), a) for a in (k, v)]
    other = run.call("scaled_dot_product_attention", q, *loud, mask)
    trace = student(run)
    for name, one, two in zip(("out", "weights"), found, other, strict=True):
        assert near(trace[one], trace[two]), f"{name} changes with what stands behind the mask."


@item("sdpa.empty", depends="sdpa.mask")
def test_rows_with_nothing_to_attend_to(script, student, draw):
    """Weights and out are exactly 0 there, and as before in every other row."""
    run = script()
    q, k, v = drawn(draw, LEAD, TQ, TK, D, DV)
    done = []
    for full in (
        np.stack([ROWS, ~ROWS])[:, None],
        ROWS,
        np.ones((4, 1), dtype=bool),
        ROWS[:2, None, None],
    ):
        mask = full.copy()
        mask[0] = False
        found = run.call("scaled_dot_product_attention", q, k, v, mask)
        done.append((mask, found, run.call("scaled_dot_product_attention", q, k, v, full)))
    trace = student(run)
    for mask, found, whole in done:
        empty = np.broadcast_to(~mask.any(-1, keepdims=True), (*LEAD, TQ, 1))[..., 0]
        for name, one, other in zip(("out", "weights"), found, whole, strict=True):
            value = trace[one]
            assert np.isfinite(value).all(), f"{name} is not finite beside a row without a True."
            assert not np.any(value[empty]), f"{name} must be exactly 0 in a row without a True."
            assert near(value[~empty], trace[other][~empty]), (
                f"{name} is another in rows that have a True, where a row beside them has none."
            )
    assert np.any(trace[whole[0]]), "out is 0 everywhere."


@item("sdpa.stable", depends="sdpa.weights")
def test_large_scores(script, student, draw):
    """Of ±1e4, near each other and far apart: the same number off all scores of a row is no change."""
    run = script()
    q = np.array([[[2e4], [-2e4], [0.3], [2.0]]])  # d = 1: a score is q · k
    k = np.array([[[0.5], [0.5 - 1e-4], [-0.5], [0.4999]]])
    done = []
    for q_, k_, v in (
        (q, k, draw(1, 4, 1)),
        (100 * draw(2, 3, 4), 100 * draw(2, 5, 4), draw(2, 5, 4)),
    ):
        whole = run.call("scaled_dot_product_attention", q_, k_, v)
        best = (q_ @ k_.swapaxes(-1, -2)).argmax(-1)
        for i in range(q_.shape[1]):  # with the best key's score at 0 none of them is large
            moved = k_ - np.take_along_axis(k_, best[:, i, None, None], axis=1)
            alone = run.call("scaled_dot_product_attention", q_[:, i : i + 1], moved, v)
            done.append((whole, alone, i, best[:, i]))
    trace = student(run)
    for whole, alone, i, best in done:
        for name, one, two in zip(("out", "weights"), whole, alone, strict=True):
            assert np.isfinite(trace[one]).all(), f"{name} is not finite where scores reach 1e4."
            assert near(trace[one][:, i], trace[two][:, 0]), (
                f"{name} changes where the same large number is added to all scores of a query. It "
                "changes nothing in a softmax: is the largest score of each row taken off before exp?"
            )
        found = trace[whole[1]][:, i].argmax(-1)
        assert np.array_equal(found, best), "The largest score does not have the largest weight."


@item("sdpa.stable")
def test_large_scores_behind_a_mask(script, student, draw):
    """Finite where the largest score is behind the mask, and of some weight where it is not."""
    run = script()
    q = np.array([[[2e4], [-2e4], [0.3]]])
    k, v = np.array([[[0.5], [-0.5], [0.4999]]]), draw(1, 3, 2)
    rows = ("011", "101", "011"), ("101", "110", "110")
    masks = [np.array([[c == "1" for c in row] for row in each]) for each in rows]
    done = [run.call("scaled_dot_product_attention", q, k, v, mask) for mask in masks]
    trace = student(run)
    for found in done:
        for name, value in zip(("out", "weights"), found, strict=True):
            assert np.isfinite(trace[value]).all(), (
                f"With a mask, {name} is not finite where scores reach 1e4."
            )
    assert np.any(trace[done[1][1]], axis=-1).all(), (
        "With a mask, no key has any weight where scores reach 1e4."
    )
