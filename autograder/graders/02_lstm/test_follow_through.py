"""What is right given the student's own step: gradients of a wrong step, sequences and masks.

Asked only where something before them is wrong. The submission makes the same numbers twice: by
backward, and by differences of its own forward; by lstm_forward and lstm_backward, and by its cell, one
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


def new_cell(run, params):
    """A cell with these parameters, and gradients of their shapes whatever __init__ made."""
    rows, columns = params["W"].shape
    cell = run.new("LSTMCell", rows - columns // 4, columns // 4, Rng(0), params=params)
    cell.zero_grad()
    return cell


def whole_forward(run, cell, mask, x, h0, c0):
    """lstm_forward; where nothing is masked, without a mask."""
    return run.call("lstm_forward", cell, x, h0, c0, *([] if mask.all() else [mask]))


def steps_forward(run, cell, real, x, h, c):
    """The cell where ``real`` (T,) is True: h after every step, the last c, and the caches."""
    hs, caches = [], []
    for t in range(len(real)):
        cache = None
        if real[t]:
            h, c, cache = cell.forward(x[:, t], h, c)
        hs.append(h)
        caches.append(cache)
    return hs, c, caches


def steps_backward(run, cell, dh, dc, caches):
    """The same steps from the last to the first: dx of every step, dh0 and dc0."""
    dxs, carried = [], np.zeros_like(dc)
    for t in reversed(range(len(caches))):
        carried = plus(run, carried, dh[:, t])
        dx = np.zeros((len(dh), D))
        if caches[t] is not None:
            dx, carried, dc = cell.backward(carried, dc, caches[t])
        dxs.insert(0, dx)
    if not isinstance(carried, np.ndarray):
        carried = run.show("dh0", carried, ("N", "H"))
    return dxs, carried, dc


def plus(run, result, array):
    """Their sum; where no step was made yet, ``result`` is an array too."""
    return result + array if isinstance(result, np.ndarray) else run.add(result, array)


def changed_at(array, step):
    """A copy of (N, T, ...) with other numbers at one step."""
    return np.where((np.arange(array.shape[1]) == step)[:, None], array + 1, array)


def joined(trace, results):
    """Results of all parts as one array; where no step was made, an array stands for a result."""
    arrays = [r if isinstance(r, np.ndarray) else trace[r] for r in results]
    return np.concatenate(arrays)


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
# Each gradient and what it belongs to.
OF = {"dx": "x", "dh_prev": "h_prev", "dc_prev": "c_prev", "dW": "W", "db": "b"}


def directions(draw, given, D, H):
    """Random directions of length 1 by name: one of each input, one of each block of W and b.

    Of W in the rows of x and in those of h_prev.
    """
    blocks = [slice(k * H, (k + 1) * H) for k in range(4)]
    places = {name: [...] for name in ("x", "h_prev", "c_prev")}
    places["W"] = [(rows, block) for rows in (slice(D), slice(D, None)) for block in blocks]
    places["b"] = blocks
    found = {}
    for name, parts_of_it in places.items():
        found[name] = []
        for place in parts_of_it:
            direction = np.zeros_like(given[name])
            direction[place] = draw(*direction[place].shape)
            found[name].append(direction / np.linalg.norm(direction))
    return found


def step_forward(run, given):
    """One step of a new cell, which is returned too."""
    cell = new_cell(run, {"W": given["W"], "b": given["b"]})
    return cell, *cell.forward(given["x"], given["h_prev"], given["c_prev"])


def step_backward(run, given, dh, dc):
    """The gradients of one step of a new cell."""
    cell, _, _, cache = step_forward(run, given)
    return *cell.backward(dh, dc, cache), run.read(cell.grads)


def step(script, student, draw, N, D, H):
    """One step's outputs, its gradients and those of five other steps, and its slopes.

    The other steps differ in x, h_prev, W, dh or dc. A slope is the derivative of sum(dh * h + dc * c)
    along a direction, by central differences; beside it stands the direction.
    """
    given = {"x": draw(N, D), "h_prev": draw(N, H), "c_prev": draw(N, H)}
    given |= draw.params("LSTMCell", D, H, Rng(0))
    dh, dc = draw(N, H), draw(N, H)
    run = script()
    _, *outputs, _ = step_forward(run, given)
    gradients = [
        step_backward(run, given, dh, dc),
        step_backward(run, given | {"x": given["x"] + 1}, dh, dc),
        step_backward(run, given | {"h_prev": given["h_prev"] + 1}, dh, dc),
        step_backward(run, given | {"W": given["W"] / 2}, dh, dc),
        step_backward(run, given, dh + 1, dc),
        step_backward(run, given, dh, dc + 1),
    ]
    beside = {
        name: [
            (
                direction,
                [
                    step_forward(run, given | {name: given[name] + s * EPS * direction})[1:3]
                    for s in (1, -1)
                ],
            )
            for direction in of_name
        ]
        for name, of_name in directions(draw, given, D, H).items()
    }
    trace = student(run)

    def loss(h, c):
        return (dh * trace[h] + dc * trace[c]).sum()

    slopes = {
        name: [
            (direction, (loss(*up) - loss(*down)) / (2 * EPS)) for direction, (up, down) in pairs
        ]
        for name, pairs in beside.items()
    }
    taken = [
        dict(
            zip(OF, (*(trace[g] for g in some), trace[grads]["W"], trace[grads]["b"]), strict=True)
        )
        for *some, grads in gradients
    ]
    return [trace[output] for output in outputs], taken, slopes


def assert_each_alive(slopes):
    """All are numbers clearly other than 0, which nothing that is ignored has."""
    largest = max(abs(slope) for slope in slopes)
    assert np.isfinite(slopes).all() and largest > 1e-7
    assert all(abs(slope) > 1e-8 * largest for slope in slopes)


@item("step.backward.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", OF)
def test_step_backward(script, student, draw, gradient):
    """The gradient is the derivative of the student's own forward.

    Whose outputs answer to every input and every block of W, and are not those of another sample. The
    gradient answers to x, h_prev, W, dh and dc: that of a linear cell would not.
    """
    for N, D, H in STEP_SIZES:
        outputs, (taken, *others), slopes = step(script, student, draw, N, D, H)
        for name in dict.fromkeys(["x", "h_prev", "c_prev", "W", OF[gradient]]):
            assert_each_alive([slope for _, slope in slopes[name]])
        assert not any(near(output[0], output[1]) for output in outputs)
        own = slopes[OF[gradient]]
        for direction, slope in own:
            along = taken[gradient] * direction
            assert abs(along.sum() - slope) < 1e-6 * abs(along).sum()
        assert not any(near(taken[gradient], other[gradient]) for other in others)


# ---- forward -------------------------------------------------------------------------------------


def forward(script, student, draw, mask):
    """By name: the whole, the steps, and the wholes of other inputs."""
    N, T = mask.shape
    x, h0, c0 = draw(N, T, D), draw(N, H), draw(N, H)
    run, params = script(), draw.params("LSTMCell", D, H, Rng(0))
    cell = new_cell(run, params)
    first, last = np.flatnonzero(mask[0])[[0, -1]]
    inputs = [(x, h0, c0), (x, h0 + 1, c0), (x, h0, c0 + 1)]
    inputs += [(changed_at(x, step), h0, c0) for step in (first, last)]
    wholes = [whole_forward(run, cell, mask, *given)[:2] for given in inputs]
    stepped = [
        steps_forward(run, cell, mask[part][0], x[part], h0[part], c0[part]) for part in parts(mask)
    ]
    trace = student(run)
    hs, cs, _ = zip(*stepped, strict=True)
    h, *other_h = (trace[h] for h, _ in wholes)
    c, *other_c = (trace[c] for _, c in wholes)
    return {
        "h": (h, joined_steps(trace, hs), other_h),
        "c_last": (c, joined(trace, cs), other_c),
    }


def follow_forward(script, student, draw, batches, output):
    """Of the first sample the end answers to the first states, and to x at both ends."""
    for mask in masks(batches):
        whole, stepped, others = forward(script, student, draw, mask)[output]
        end = (0, -1) if output == "h" else (0,)
        assert_follows(whole, stepped, [(whole[end], other[end]) for other in others])


@item("sequence.forward.{output}", follow_through=True)
@pytest.mark.parametrize("output", ["h", "c_last"])
def test_forward(script, student, draw, output):
    """lstm_forward is the student's own cell, step by step."""
    follow_forward(script, student, draw, NO_MASK, output)


@item("mask.forward.{output}", follow_through=True)
@pytest.mark.parametrize("output", ["h", "c_last"])
def test_masked_forward(script, student, draw, output):
    """Under a mask it is the real steps alone."""
    follow_forward(script, student, draw, MASKS, output)


# ---- backward ------------------------------------------------------------------------------------


def backward(script, student, draw, mask):
    """By name: the whole, the steps, and pairs of wholes of inputs that differ at one end.

    The first pair differs in dh at the last step; of the second, whose dh is 0 before that, x differs
    at the first.
    """
    N, T = mask.shape
    x, h0, c0, dh, dc_last = draw(N, T, D), draw(N, H), draw(N, H), draw(N, T, H), draw(N, H)
    run, params = script(), draw.params("LSTMCell", D, H, Rng(0))
    at_end = np.where((np.arange(T) == T - 1)[:, None], dh, 0)
    other_x = changed_at(x, mask[0].argmax())
    wholes = []
    for given, arriving in [(x, dh), (x, changed_at(dh, T - 1)), (x, at_end), (other_x, at_end)]:
        cell = new_cell(run, params)
        _, _, cache = whole_forward(run, cell, mask, given, h0, c0)
        gradients = run.call("lstm_backward", cell, arriving, dc_last, cache)
        wholes.append((*gradients, run.read(cell.grads)))
    cell, stepped = new_cell(run, params), []
    for part in parts(mask):
        _, _, caches = steps_forward(run, cell, mask[part][0], x[part], h0[part], c0[part])
        stepped.append(steps_backward(run, cell, dh[part], dc_last[part], caches))
    grads = run.read(cell.grads)
    trace = student(run)
    dxs, dh0s, dc0s = zip(*stepped, strict=True)
    steps = joined_steps(trace, dxs), joined(trace, dh0s), joined(trace, dc0s)
    steps = named(*steps, trace[grads])
    whole, *others = (named(*(trace[handle] for handle in outputs)) for outputs in wholes)
    return {
        name: (
            whole[name],
            steps[name],
            [(whole[name], others[0][name]), (others[1][name], others[2][name])],
        )
        for name in steps
    }


def named(dx, dh0, dc0, grads):
    """The five gradients by name."""
    return {"dx": dx, "dh0": dh0, "dc0": dc0, "dW": grads["W"], "db": grads["b"]}


def follow_backward(script, student, draw, batches, names):
    """Of the first sample the start answers to dh at the end, and to x on the way there."""
    for mask in masks(batches):
        found = backward(script, student, draw, mask)
        start = {"dx": (0, mask[0].argmax()), "dh0": 0, "dc0": 0}
        for name in names:
            whole, stepped, pairs = found[name]
            # the cell's parameter gradients may depend on how many samples make a step together
            if len(parts(mask)) > 1 and name in ("dW", "db"):
                stepped = whole
            at = start.get(name, ...)
            assert_follows(whole, stepped, [(one[at], other[at]) for one, other in pairs])


@item("sequence.backward.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", ["dx", "dh0", "dc0", "dW", "db"])
def test_backward(script, student, draw, gradient):
    """lstm_backward is the student's own cell, from the last step to the first."""
    follow_backward(script, student, draw, NO_MASK, [gradient])


@item("mask.backward.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", ["dx", "state", "params"])
def test_masked_backward(script, student, draw, gradient):
    """Under a mask it is the real steps alone, and what arrives between them is passed on."""
    names = {"dx": ["dx"], "state": ["dh0", "dc0"], "params": ["dW", "db"]}
    follow_backward(script, student, draw, MASKS, names[gradient])
