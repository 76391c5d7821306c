"""What is right given the student's own step: gradients of a wrong step, sequences and masks.

Asked only where something before them is wrong. The submission makes the same numbers twice: by
backward, and by differences of its own forward; by gru_forward and gru_backward, and by its cell, one
step after the other. They must agree, and they must be alive: one step must answer to all it is made of,
the far end of a sequence to what is changed at this one. Zeros, constants and functions that ignore what
they are given agree with themselves too, and earn nothing.
"""

import numpy as np
import pytest
from softmark.plugin import item
from softmark.script import Rng

D, H = 4, 3
NO_MASK = [["11111"] * 3]
# Alike for the whole batch, whose steps the cell can then make together; then a mask for each sample.
MASKS = [["1101100"] * 3, ["110101", "011010", "000000", "111100"]]


def masks(batches):
    """Masks (N, T) from their rows."""
    return [np.array([[c == "1" for c in row] for row in rows]) for rows in batches]


def parts(mask):
    """The samples that make their steps together: all of them, or each by itself."""
    alike = (mask == mask[0]).all()
    return [slice(None)] if alike else [slice(n, n + 1) for n in range(len(mask))]


def new_cell(run, params, kind="GRUCell"):
    """A cell with these parameters and gradients of zero; b_h and W_h give away its sizes."""
    hidden = params["W_h"].shape[1] // (1 if kind == "GRUCell" else 3)
    rows = len(params["W"]) - hidden if kind == "GRUCell" else len(params["W_x"])
    cell = run.new(kind, rows, hidden, Rng(0), params=params)
    cell.zero_grad()
    return cell


def whole_forward(run, cell, mask, x, h0):
    """gru_forward; where nothing is masked, without a mask."""
    return run.call("gru_forward", cell, x, h0, *([] if mask.all() else [mask]))


def steps_forward(cell, real, x, h):
    """The cell where ``real`` (T,) is True: h after every step, and the caches."""
    hs, caches = [], []
    for t in range(len(real)):
        cache = None
        if real[t]:
            h, cache = cell.forward(x[:, t], h)
        hs.append(h)
        caches.append(cache)
    return hs, caches


def steps_backward(run, cell, dh, caches):
    """The same steps from the last to the first: dx of every step, and dh0."""
    dxs, carried = [], np.zeros_like(dh[:, 0])
    for t in reversed(range(len(caches))):
        carried = plus(run, carried, dh[:, t])
        dx = np.zeros((len(dh), D))
        if caches[t] is not None:
            dx, carried = cell.backward(carried, caches[t])
        dxs.insert(0, dx)
    if not isinstance(carried, np.ndarray):
        carried = run.show("dh0", carried, ("N", "H"))
    return dxs, carried


def plus(run, result, array):
    """Their sum; where no step was made yet, ``result`` is an array too."""
    return result + array if isinstance(result, np.ndarray) else run.add(result, array)


def changed_at(array, step):
    """A copy of (N, T, ...) with other numbers at one step."""
    return np.where((np.arange(array.shape[1]) == step)[:, None], array + 1, array)


def joined(trace, results):
    """Results of all parts as one array; where no step was made, an array stands for a result."""
    return np.concatenate([r if isinstance(r, np.ndarray) else trace[r] for r in results])


def joined_steps(trace, results):
    """The same for lists of one result a step: (N, T, ...)."""
    return np.stack([joined(trace, step) for step in zip(*results, strict=True)], axis=1)


def near(a, b):
    """Equal up to rounding, for values of about the size of the larger array's largest."""
    return np.allclose(a, b, 1e-10, 1e-10 * max(np.abs(a).max(initial=0), np.abs(b).max(initial=0)))


def assert_follows(whole, stepped, changed):
    """The two ways agree, in finite numbers; and the two of each pair in ``changed`` differ."""
    assert np.isfinite(whole).all()
    assert near(whole, stepped)
    assert not any(near(one, other) for one, other in changed)


# ---- one step backward ---------------------------------------------------------------------------

STEP_SIZES = [(3, 5, 4), (4, 2, 3)]  # (N, D, H)
EPS = 1e-5
# Each gradient and what it belongs to; each item of the other cell and its gradients.
OF = {"db_h": "b_h", "dW_h": "W_h", "db": "b", "dW": "W", "dx": "x", "dh_prev": "h_prev"}
OF_AFTER = {"dx": ["x"], "dh_prev": ["h_prev"], "x_params": ["W_x", "b_x"]}
OF_AFTER["h_params"] = ["W_h", "b_h"]
# Parameters whose columns are blocks, one for each gate or candidate.
BLOCKS = {"GRUCell": {"W": 2, "b": 2, "W_h": 1, "b_h": 1}}
BLOCKS["ResetAfterGRUCell"] = dict.fromkeys(("W_x", "W_h", "b_x", "b_h"), 3)


def places(kind, name, shape, D):
    """The parts of an input or parameter that are moved by themselves."""
    if name not in BLOCKS[kind]:
        return [...]
    count = BLOCKS[kind][name]
    width = shape[-1] // count
    columns = [slice(k * width, (k + 1) * width) for k in range(count)]
    if kind == "GRUCell" and len(shape) == 2:
        return [(rows, block) for rows in (slice(D), slice(D, None)) for block in columns]
    return [(..., block) for block in columns]


def directions(draw, kind, given, D):
    """Random directions of length 1 by name: one of each input, one of each part of a parameter."""
    found = {}
    for name, array in given.items():
        found[name] = []
        for place in places(kind, name, array.shape, D):
            direction = np.zeros_like(array)
            direction[place] = draw(*direction[place].shape)
            found[name].append(direction / np.linalg.norm(direction))
    return found


def step_forward(run, kind, given):
    """One step of a new cell, which is returned too."""
    cell = new_cell(run, {name: given[name] for name in BLOCKS[kind]}, kind)
    return cell, *cell.forward(given["x"], given["h_prev"])


def step_backward(run, kind, given, dh):
    """The gradients of one step of a new cell."""
    cell, _, cache = step_forward(run, kind, given)
    return *cell.backward(dh, cache), run.read(cell.grads)


def step(script, student, draw, kind, N, D, H):
    """One step's h, its gradients and those of four other steps, by the name of what they belong to,
    and its slopes.

    The other steps differ in x, h_prev, a matrix or dh. A slope is the derivative of sum(dh * h) along
    a direction, by central differences; beside it stands the direction.
    """
    given = {"x": draw(N, D), "h_prev": draw(N, H)} | draw.params(kind, D, H, Rng(0))
    matrix = "W" if kind == "GRUCell" else "W_x"
    dh = draw(N, H)
    run = script()
    _, h, _ = step_forward(run, kind, given)
    gradients = [
        step_backward(run, kind, given, dh),
        step_backward(run, kind, given | {"x": given["x"] + 1}, dh),
        step_backward(run, kind, given | {"h_prev": given["h_prev"] + 1}, dh),
        step_backward(run, kind, given | {matrix: given[matrix] / 2}, dh),
        step_backward(run, kind, given, dh + 1),
    ]
    beside = {
        name: [
            (
                direction,
                [
                    step_forward(run, kind, given | {name: given[name] + s * EPS * direction})[1]
                    for s in (1, -1)
                ],
            )
            for direction in of_name
        ]
        for name, of_name in directions(draw, kind, given, D).items()
    }
    trace = student(run)
    slopes = {
        name: [
            (direction, (dh * (trace[up] - trace[down])).sum() / (2 * EPS))
            for direction, (up, down) in pairs
        ]
        for name, pairs in beside.items()
    }
    taken = [
        {"x": trace[dx], "h_prev": trace[dh_prev]} | trace[grads]
        for dx, dh_prev, grads in gradients
    ]
    return trace[h], taken, slopes


def assert_each_alive(slopes):
    """All are numbers clearly other than 0, which nothing that is ignored has."""
    largest = max(abs(slope) for slope in slopes)
    assert np.isfinite(slopes).all() and largest > 1e-7
    assert all(abs(slope) > 1e-8 * largest for slope in slopes)


def follow_step(script, student, draw, kind, names):
    """The gradients are the derivatives of the student's own forward.

    Whose h answers to every input and every block of the matrices, and is not that of another sample.
    The gradients answer to x, h_prev, a matrix and dh: those of a linear cell would not.
    """
    matrices = [name for name in BLOCKS[kind] if name.startswith("W")]
    for N, D, H in STEP_SIZES:
        h, (taken, *others), slopes = step(script, student, draw, kind, N, D, H)
        for name in dict.fromkeys(["x", "h_prev", *matrices, *names]):
            assert_each_alive([slope for _, slope in slopes[name]])
        assert not near(h[0], h[1])
        for name in names:
            for direction, slope in slopes[name]:
                along = taken[name] * direction
                assert abs(along.sum() - slope) < 1e-6 * abs(along).sum()
            assert not any(near(taken[name], other[name]) for other in others)


@item("step.backward.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", OF)
def test_step_backward(script, student, draw, gradient):
    """A gradient of a wrong step is right for that step."""
    follow_step(script, student, draw, "GRUCell", [OF[gradient]])


@item("after.backward.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", OF_AFTER)
def test_step_backward_with_the_reset_after(script, student, draw, gradient):
    """The same of the other cell."""
    follow_step(script, student, draw, "ResetAfterGRUCell", OF_AFTER[gradient])


# ---- forward -------------------------------------------------------------------------------------


def follow_forward(script, student, draw, batches):
    """gru_forward is the cell step by step; the first sample's end answers to h0 and both ends of x."""
    for mask in masks(batches):
        N, T = mask.shape
        x, h0 = draw(N, T, D), draw(N, H)
        run, params = script(), draw.params("GRUCell", D, H, Rng(0))
        cell = new_cell(run, params)
        first, last = np.flatnonzero(mask[0])[[0, -1]]
        inputs = [(x, h0), (x, h0 + 1)]
        inputs += [(changed_at(x, step), h0) for step in (first, last)]
        wholes = [whole_forward(run, cell, mask, *given)[0] for given in inputs]
        stepped = [steps_forward(cell, mask[part][0], x[part], h0[part])[0] for part in parts(mask)]
        trace = student(run)
        whole, *others = (trace[h] for h in wholes)
        pairs = [(whole[0, -1], other[0, -1]) for other in others]
        assert_follows(whole, joined_steps(trace, stepped), pairs)


@item("sequence.forward.h", follow_through=True)
def test_forward(script, student, draw):
    """gru_forward is the student's own cell, step by step."""
    follow_forward(script, student, draw, NO_MASK)


@item("mask.forward.h", follow_through=True)
def test_masked_forward(script, student, draw):
    """Under a mask it is the real steps alone."""
    follow_forward(script, student, draw, MASKS)


# ---- backward ------------------------------------------------------------------------------------


def backward(script, student, draw, mask):
    """By name: the whole, the steps, and pairs of wholes of inputs that differ at one end.

    The first pair differs in dh at the last step; of the second, whose dh is 0 before that, x differs
    at the first.
    """
    N, T = mask.shape
    x, h0, dh = draw(N, T, D), draw(N, H), draw(N, T, H)
    run, params = script(), draw.params("GRUCell", D, H, Rng(0))
    at_end = np.where((np.arange(T) == T - 1)[:, None], dh, 0)
    other_x = changed_at(x, mask[0].argmax())
    wholes = []
    for given, arriving in [(x, dh), (x, changed_at(dh, T - 1)), (x, at_end), (other_x, at_end)]:
        cell = new_cell(run, params)
        _, cache = whole_forward(run, cell, mask, given, h0)
        gradients = run.call("gru_backward", cell, arriving, cache)
        wholes.append((*gradients, run.read(cell.grads)))
    cell, stepped = new_cell(run, params), []
    for part in parts(mask):
        _, caches = steps_forward(cell, mask[part][0], x[part], h0[part])
        stepped.append(steps_backward(run, cell, dh[part], caches))
    grads = run.read(cell.grads)
    trace = student(run)
    dxs, dh0s = zip(*stepped, strict=True)
    steps = named(joined_steps(trace, dxs), joined(trace, dh0s), trace[grads])
    whole, *others = (named(*(trace[handle] for handle in outputs)) for outputs in wholes)
    return {
        name: (
            whole[name],
            steps[name],
            [(whole[name], others[0][name]), (others[1][name], others[2][name])],
        )
        for name in steps
    }


def named(dx, dh0, grads):
    """The gradients by name."""
    return {"dx": dx, "dh0": dh0} | {f"d{key}": grad for key, grad in grads.items()}


def follow_backward(script, student, draw, batches, names):
    """Of the first sample the start answers to dh at the end, and to x on the way there."""
    for mask in masks(batches):
        found = backward(script, student, draw, mask)
        start = {"dx": (0, mask[0].argmax()), "dh0": 0}
        for name in names:
            whole, stepped, pairs = found[name]
            # the cell's parameter gradients may depend on how many samples make a step together
            if len(parts(mask)) > 1 and name not in start:
                stepped = whole
            at = start.get(name, ...)
            assert_follows(whole, stepped, [(one[at], other[at]) for one, other in pairs])


PARAMETERS = ["dW", "db", "dW_h", "db_h"]


@item("sequence.backward.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", ["dx", "dh0", *PARAMETERS])
def test_backward(script, student, draw, gradient):
    """gru_backward is the student's own cell, from the last step to the first."""
    follow_backward(script, student, draw, NO_MASK, [gradient])


@item("mask.backward.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", ["dx", "dh0", "params"])
def test_masked_backward(script, student, draw, gradient):
    """Under a mask it is the real steps alone, and what arrives between them is passed on."""
    names = {"dx": ["dx"], "dh0": ["dh0"], "params": PARAMETERS}
    follow_backward(script, student, draw, MASKS, names[gradient])
