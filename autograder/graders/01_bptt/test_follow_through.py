"""What is right given the student's own earlier parts: gradients of a wrong step, sequences, masks,
windows, a language model.

Asked only where something before them is wrong. The submission makes the same numbers twice: by
backward, and by differences of its own forward; by rnn_forward and rnn_backward, and by its cell, one
step after the other. They must agree, and they must be alive: one step must answer to all it is made of,
the far end of a sequence to what is changed at this one. Zeros, constants and functions that ignore what
they are given agree with themselves too, and earn nothing.
"""

import numpy as np
import pytest
from softmark.plugin import item
from softmark.script import Rng

D, H = 4, 3
KEYS = ("W_xh", "W_hh", "b_h")
PARAMETERS = [f"d{key}" for key in KEYS]
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
    """A cell with these parameters."""
    return run.new("RNNCell", *params["W_xh"].shape, Rng(0), params=params)


def whole_forward(run, cell, mask, x, h0):
    """rnn_forward; where nothing is masked, without a mask."""
    return run.call("rnn_forward", cell, x, h0, *([] if mask.all() else [mask]))


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

EPS = 1e-5
# Each gradient and what it belongs to.
OF = {"dx": "x", "dh_prev": "h_prev", "dW_xh": "W_xh", "dW_hh": "W_hh", "db_h": "b_h"}


def step_forward(run, given):
    """One step of a new cell, which is returned too."""
    cell = new_cell(run, {key: given[key] for key in KEYS})
    return cell, *cell.forward(given["x"], given["h_prev"])


def step_backward(run, given, dh):
    """The gradients of one step of a new cell."""
    cell, _, cache = step_forward(run, given)
    return *cell.backward(dh, cache), run.read(cell.grads)


def step(script, student, draw, N, D, H):
    """One step's h, its gradients and those of four other steps, and its slopes.

    The other steps differ in x, h_prev, the weights or dh. A slope is the derivative of sum(dh * h)
    along a direction, by central differences; beside it stands the direction.
    """
    given = {"x": draw(N, D), "h_prev": draw(N, H)} | draw.params("RNNCell", D, H, Rng(0))
    dh = draw(N, H)
    run = script()
    _, h, _ = step_forward(run, given)
    halved = {key: given[key] / 2 for key in ("W_xh", "W_hh")}
    gradients = [
        step_backward(run, given, dh),
        step_backward(run, given | {"x": given["x"] + 1}, dh),
        step_backward(run, given | {"h_prev": given["h_prev"] + 1}, dh),
        step_backward(run, given | halved, dh),
        step_backward(run, given, dh + 1),
    ]
    beside = {}
    for name in OF.values():
        for _ in range(3):
            direction = draw(*given[name].shape)
            direction /= np.linalg.norm(direction)
            moved = [given | {name: given[name] + s * EPS * direction} for s in (1, -1)]
            pair = [step_forward(run, each)[1] for each in moved]
            beside.setdefault(name, []).append((direction, pair))
    trace = student(run)

    def loss(h):
        return (dh * trace[h]).sum()

    slopes = {
        name: [(direction, (loss(up) - loss(down)) / (2 * EPS)) for direction, (up, down) in pairs]
        for name, pairs in beside.items()
    }
    taken = [
        {"dx": trace[dx], "dh_prev": trace[dh_prev]} | {f"d{k}": trace[grads][k] for k in KEYS}
        for dx, dh_prev, grads in gradients
    ]
    return trace[h], taken, slopes


def assert_each_alive(slopes):
    """All are numbers clearly other than 0, which nothing that is ignored has."""
    largest = max(abs(slope) for slope in slopes)
    assert np.isfinite(slopes).all() and largest > 1e-7
    assert all(abs(slope) > 1e-8 * largest for slope in slopes)


@item("step.backward.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", OF)
def test_step_backward(script, student, draw, gradient):
    """The gradient is the derivative of the student's own forward.

    Whose h answers to every input and every parameter, and is not that of another sample. The gradient
    answers to x, h_prev, the weights and dh: that of a linear cell would not.
    """
    for N, D, H in [(3, 5, 4), (4, 2, 3)]:
        h, (taken, *others), slopes = step(script, student, draw, N, D, H)
        for of_name in slopes.values():
            assert_each_alive([slope for _, slope in of_name])
        assert not near(h[0], h[1])
        own = slopes[OF[gradient]]
        for direction, slope in own:
            along = taken[gradient] * direction
            assert abs(along.sum() - slope) < 1e-6 * abs(along).sum()
        assert not any(near(taken[gradient], other[gradient]) for other in others)


# ---- forward -------------------------------------------------------------------------------------


def follow_forward(script, student, draw, batches):
    """Of the first sample the end answers to the first state, and to x at both ends."""
    for mask in masks(batches):
        N, T = mask.shape
        x, h0 = draw(N, T, D), draw(N, H)
        run, params = script(), draw.params("RNNCell", D, H, Rng(0))
        cell = new_cell(run, params)
        first, last = np.flatnonzero(mask[0])[[0, -1]]
        inputs = [(x, h0), (x, h0 + 1), (changed_at(x, first), h0), (changed_at(x, last), h0)]
        wholes = [whole_forward(run, cell, mask, *given)[0] for given in inputs]
        steps = [steps_forward(cell, mask[p][0], x[p], h0[p])[0] for p in parts(mask)]
        trace = student(run)
        whole, *others = (trace[h] for h in wholes)
        ends = [(whole[0, -1], other[0, -1]) for other in others]
        assert_follows(whole, joined_steps(trace, steps), ends)


@item("sequence.forward.h", follow_through=True)
def test_forward(script, student, draw):
    """rnn_forward is the student's own cell, step by step."""
    follow_forward(script, student, draw, NO_MASK)


@item("mask.forward.h", follow_through=True)
def test_masked_forward(script, student, draw):
    """Under a mask it is the real steps alone."""
    follow_forward(script, student, draw, MASKS)


# ---- backward ------------------------------------------------------------------------------------


def named(dx, dh0, grads):
    """The five gradients by name."""
    return {"dx": dx, "dh0": dh0} | {f"d{key}": grads[key] for key in KEYS}


def backward(script, student, draw, mask):
    """By name: the whole, the steps, and pairs of wholes of inputs that differ at one end.

    The first pair differs in dh at the last step; of the second, whose dh is 0 before that, x differs
    at the first.
    """
    N, T = mask.shape
    x, h0, dh = draw(N, T, D), draw(N, H), draw(N, T, H)
    run, params = script(), draw.params("RNNCell", D, H, Rng(0))
    at_end = np.where((np.arange(T) == T - 1)[:, None], dh, 0)
    other_x = changed_at(x, mask[0].argmax())
    wholes = []
    for given, arriving in [(x, dh), (x, changed_at(dh, T - 1)), (x, at_end), (other_x, at_end)]:
        cell = new_cell(run, params)
        _, cache = whole_forward(run, cell, mask, given, h0)
        gradients = run.call("rnn_backward", cell, arriving, cache)
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


@item("sequence.backward.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", ["dx", "dh0", *PARAMETERS])
def test_backward(script, student, draw, gradient):
    """rnn_backward is the student's own cell, from the last step to the first."""
    follow_backward(script, student, draw, NO_MASK, [gradient])


@item("mask.backward.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", ["dx", "dh0", "params"])
def test_masked_backward(script, student, draw, gradient):
    """Under a mask it is the real steps alone, and what arrives between them is passed on."""
    names = PARAMETERS if gradient == "params" else [gradient]
    follow_backward(script, student, draw, MASKS, names)


# ---- windows -------------------------------------------------------------------------------------


@item("truncated.{gradient}", follow_through=True)
@pytest.mark.parametrize("gradient", ["dx", "dh0", "params"])
def test_windows(script, student, draw, gradient):
    """Each window is the student's own steps from where the one before it ended, and back again."""
    N, T, window = 3, 7, 3
    x, h0, dh = draw(N, T, D), draw(N, H), draw(N, T, H)
    run, params = script(), draw.params("RNNCell", D, H, Rng(0))
    wholes = []
    for given, arriving in [(x, dh), (x, dh + 1), (changed_at(x, 0), dh)]:
        cell = new_cell(run, params)
        _, cache = run.call("rnn_forward", cell, given, h0)
        gradients = run.call("truncated_rnn_backward", cell, arriving, cache, window)
        wholes.append((*gradients, run.read(cell.grads)))
    cell = new_cell(run, params)
    _, caches = steps_forward(cell, [True] * T, x, h0)
    starts = range(0, T, window)
    stepped = [
        steps_backward(run, cell, dh[:, s : s + window], caches[s : s + window]) for s in starts
    ]
    grads = run.read(cell.grads)
    trace = student(run)
    dx = np.stack([trace[dx] for dxs, _ in stepped for dx in dxs], axis=1)
    steps = named(dx, trace[stepped[0][1]], trace[grads])
    whole, *others = (named(*(trace[handle] for handle in outputs)) for outputs in wholes)
    for name in PARAMETERS if gradient == "params" else [gradient]:
        pairs = [(whole[name], other[name]) for other in others]
        assert_follows(whole[name], steps[name], pairs)


# ---- the language model --------------------------------------------------------------------------

V = 5
LM = {
    "loss": ["loss"],
    "output": ["W_hy", "b_y"],
    "cell": list(KEYS),
    "embedding": ["embedding"],
}


def language_model(script, student, params, model, tokens, mask, h0):
    """rnn_lm_loss, and the same from the student's own rnn_forward, loss and rnn_backward, by name."""
    embedding, W_hy, b_y = model
    run = script()
    cell, own = new_cell(run, params), new_cell(run, params)
    loss, grads = run.call("rnn_lm_loss", cell, *model, tokens, mask, h0)
    of_cell = run.read(cell.grads)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = embedding[inputs]
    h, _ = run.call("rnn_forward", own, x, h0)
    trace = student(run)
    whole = {"loss": trace[loss]} | trace[grads] | trace[of_cell]
    h = trace[h]
    run = script()
    loss, dlogits = run.call("sequence_cross_entropy", h @ W_hy + b_y, targets, mask[:, 1:])
    trace = student(run)
    loss, dlogits = trace[loss], trace[dlogits]
    run = script()
    own = new_cell(run, params)
    _, cache = run.call("rnn_forward", own, x, h0)
    dx, _ = run.call("rnn_backward", own, dlogits @ W_hy.T, cache)
    of_cell = run.read(own.grads)
    trace = student(run)
    gathered = np.zeros_like(embedding)
    np.add.at(gathered, inputs, trace[dx])
    composed = {"loss": loss, "embedding": gathered, "b_y": dlogits.sum(axis=(0, 1))}
    composed["W_hy"] = np.tensordot(h, dlogits, axes=([0, 1], [0, 1]))
    return whole, composed | trace[of_cell]


@item("lm.{what}", follow_through=True)
@pytest.mark.parametrize("what", LM)
def test_language_model(script, student, draw, what):
    """It is the student's own sequence and loss, one after the other.

    It answers to its tokens, and through the cell to the embedding and to the state it begins with.
    """
    N, T = 3, 6
    params = draw.params("RNNCell", D, H, Rng(0))
    embedding, *rest = draw(V, D), draw(H, V), draw(V)
    mask, h0 = np.arange(T) < np.array([[T], [3], [5]]), draw(N, H)
    tokens = draw.rng.integers(V, size=(N, T))
    whole, composed = language_model(script, student, params, (embedding, *rest), tokens, mask, h0)
    run = script()
    others = []
    for given in [
        (embedding, *rest, (tokens + 1) % V, mask, h0),
        (embedding + 1, *rest, tokens, mask, h0),
        (embedding, *rest, tokens, mask, h0 + 1),
    ]:
        cell = new_cell(run, params)
        others.append((*run.call("rnn_lm_loss", cell, *given), run.read(cell.grads)))
    trace = student(run)
    others = [
        {"loss": trace[loss]} | trace[grads] | trace[of_cell] for loss, grads, of_cell in others
    ]
    for name in LM[what]:
        pairs = [(whole[name], other[name]) for other in others]
        assert_follows(whole[name], composed[name], pairs)
