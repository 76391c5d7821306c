"""attention_backward under torch.no_grad(): values against the reference, masks in its own numbers."""

import numpy as np
import pytest
from softmark.plugin import Disagreement, item

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
NAMES = ("dq", "dk", "dv")
# A True and a False in every row; every key is seen and shut out by some.
ROWS = np.array([[c == "1" for c in row] for row in ("01101", "10110", "11011", "00100")])


def drawn(draw, lead, Tq, Tk, d, dv):
    """dout, q, k and v."""
    return draw(*lead, Tq, dv), draw(*lead, Tq, d), draw(*lead, Tk, d), draw(*lead, Tk, dv)


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


def part(draw, shape):
    """A mask with two True and a False in every row, at least: one alone has gradients of 0."""
    mask = draw.rng.random(shape) < 0.5
    first = draw.rng.integers(shape[-1], size=(*shape[:-1], 1))
    for place, value in enumerate((True, True, False)):
        np.put_along_axis(mask, (first + place) % shape[-1], value, -1)
    return mask


def given_own_weights(script, student, cases):
    """Whether dq, dk and dv, masked, are those of the submission's own weights, equations (6) to (9).

    ``cases``: the arguments of attention_backward, and what it gave. Weights that heed the mask in none
    of them do not count.
    """
    run = script()
    run.no_grad()
    name, done = "scaled_dot_product_attention", []
    for (dout, q, k, v, mask), found in cases:
        masked, plain = run.call(name, q, k, v, mask), run.call(name, q, k, v)
        done.append((dout, q, k, v, masked[1], plain[1], found))
    try:
        trace = student(run)
    except Disagreement:
        return False
    heeds = False
    for dout, q, k, v, masked, plain, found in done:
        weights = trace[masked]
        heeds = heeds or not near(weights, trace[plain])
        dweights = dout @ v.swapaxes(-1, -2)
        along = (weights * dweights).sum(-1, keepdims=True)
        dscores = weights * (dweights - along) / np.sqrt(q.shape[-1])
        due = dscores @ k, dscores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dout
        for one, two in zip(found, due, strict=True):  # keys of 1e4 leave few digits
            if not np.allclose(one, two, 1e-8, 1e-12 * max(1.0, np.abs(k).max()) ** 2):
                return False
    return heeds


@item("backward.{gradient}", depends="sdpa.weights", draws="plain")
@pytest.mark.parametrize("gradient", ["dv", "dq", "dk"])
def test_gradients(script, agree, draw, gradient):
    """Each gradient, without a mask."""
    run = script()
    run.no_grad()
    for size in SIZES:
        run.call("attention_backward", *drawn(draw, *size))
    run.call("attention_backward", *drawn(draw, *SIZES[1]), None)
    agree(run, only=gradient)


@item("backward.mask", depends=("sdpa.mask", "backward.dv", "backward.dq", "backward.dk"))
def test_query_by_query(script, student, draw):
    """As each query gives by itself, with the keys that it may see and no others."""
    run = script()
    run.no_grad()
    dout, q, k, v = drawn(draw, (2, 3), 4, 5, 6, 2)
    whole = run.call("attention_backward", dout, q, k, v, ROWS)
    alone = []
    for i, seen in enumerate(ROWS):
        row = slice(i, i + 1)
        given = dout[..., row, :], q[..., row, :], k[..., seen, :], v[..., seen, :]
        alone.append((seen, run.call("attention_backward", *given)))
    trace = student(run)
    due = {"dq": np.zeros(q.shape), "dk": np.zeros(k.shape), "dv": np.zeros(v.shape)}
    for i, (seen, (dq, dk, dv)) in enumerate(alone):
        due["dq"][..., i, :] = trace[dq][..., 0, :]
        due["dk"][..., seen, :] += trace[dk]
        due["dv"][..., seen, :] += trace[dv]
    found = [trace[handle] for handle in whole]
    assert all(map(np.any, found)), "A gradient is 0 everywhere."
    wrong = [name for name, one in zip(NAMES, found, strict=True) if not near(one, due[name])]
    assert not wrong or given_own_weights(script, student, [((dout, q, k, v, ROWS), found)]), (
        f"With a mask, {' and '.join(wrong)} differ{'s' * (len(wrong) == 1)} from what the queries give "
        "alone, each with the keys that it may attend to."
    )


@item("backward.mask", depends=("sdpa.mask", "backward.dv", "backward.dq", "backward.dk"))
def test_masks_broadcast(script, student, draw):
    """A mask gives what it gives written out; what stands behind it, up to 1e4, is not heard."""
    run = script()
    run.no_grad()
    done = []
    for shape in ((2, 1, 1, 5), (3, 4, 5), (2, 1, 4, 5), (5,)):
        given, mask = drawn(draw, (2, 3), 4, 5, 6, 2), part(draw, shape)
        other = given
        if shape in ((5,), (2, 1, 1, 5)):  # some keys are shut out from all queries
            shut = ~np.broadcast_to(mask, (2, 3, 1, 5))[..., 0, :, None]
            loud = [np.where(shut, draw.rng.choice([-1e4, 1e4], a.shape), a) for a in given[2:]]
            other = *given[:2], *loud
        full = np.broadcast_to(mask, (2, 3, 4, 5)).copy()
        calls = (*other, mask), (*given, full)
        done.append((shape, calls, [run.call("attention_backward", *call) for call in calls]))
    trace = student(run)
    alive = set()
    for shape, calls, results in done:
        found = [[trace[handle] for handle in each] for each in results]
        for name, one, two in zip(NAMES, *found, strict=True):
            alive |= {name} if np.any(two) else set()
            assert near(one, two) or given_own_weights(
                script, student, list(zip(calls, found, strict=True))
            ), (
                f"{name} with a mask of shape {shape} is not that of the mask written out, or changes "
                "with what stands behind it."
            )
    for name in NAMES:
        assert name in alive, f"With any mask {name} is 0 everywhere."


@item("backward.empty", depends=("sdpa.empty", "backward.mask"))
def test_rows_with_nothing_to_attend_to(script, student, draw):
    """dq is exactly 0 there; dk and dv are what the other queries give."""
    run = script()
    run.no_grad()
    dout, q, k, v = drawn(draw, (2, 3), 4, 5, 6, 2)
    mask = ROWS.copy()
    mask[2] = False
    others = [0, 1, 3]
    whole = run.call("attention_backward", dout, q, k, v, mask)
    rest = run.call(
        "attention_backward", dout[..., others, :], q[..., others, :], k, v, mask[others]
    )
    nothing = run.call("attention_backward", dout, q, k, v, np.zeros((2, 1, 1, 5), dtype=bool))
    trace = student(run)
    for name, handle, none in zip(NAMES, whole, nothing, strict=True):
        for value in (trace[handle], trace[none]):
            assert np.isfinite(value).all(), f"{name} is not finite beside a row without a True."
        assert not np.any(trace[none]), f"{name} must be exactly 0 where no row has a True."
    assert not np.any(trace[whole[0]][..., 2, :]), "dq must be exactly 0 in a row without a True."
    assert near(trace[whole[0]][..., others, :], trace[rest[0]]), (
        "dq changes in rows that have a True, where a row beside them has none."
    )
    for name, one, two in zip(NAMES[1:], whole[1:], rest[1:], strict=True):
        assert np.any(trace[two]), f"{name} is 0 everywhere."
        assert near(trace[one], trace[two]), f"Something of a row without a True reaches {name}."
