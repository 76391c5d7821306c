"""The PyTorch twin: values, gradients through autograd, masks, and how many products it makes."""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

# (N, T, D, H). Sizes that all differ, D above and below H, then each of them 1.
SIZES = [(3, 5, 4, 6), (4, 7, 3, 2), (1, 4, 3, 2), (3, 1, 2, 4), (2, 4, 1, 3), (3, 5, 2, 1)]
# (D, H) and the mask: holes, False at the start, at the end, everywhere in a row; N = 1, T = 1. Every
# batch has a real step: without any a right twin may leave parameters without a gradient.
MASKS = [
    ((3, 5), ["001101", "000000", "111111", "110100"]),
    ((4, 2), ["01101"]),
    ((2, 4), ["1", "0", "1"]),
    ((1, 3), ["000", "010"]),
    ((4, 1), ["1011", "0111", "1110"]),
]
PARAMS = ("W", "b", "W_h", "b_h")
GRADIENTS = ("dx", "dh0", *(f"d{name}" for name in PARAMS))
AXES = {
    "x": ("N", "T", "D"),
    "h0": ("N", "H"),
    "W": ("D + H", "2 H"),
    "b": ("2 H",),
    "W_h": ("D + H", "H"),
    "b_h": ("H",),
}
BLOCKS = {"W": {1: ("r", "z")}, "b": {0: ("r", "z")}}
# Where the operators that are matrix products have their left factor; its last axis is summed over.
PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "vdot": 0, "matmul": 0, "linear": 0}
PRODUCTS |= {"addmm": 1, "baddbmm": 1, "addmv": 1, "addbmm": 1, "_addmm_activation": 1}
# These sum over what their second argument, the weights, holds for one output.
CONVOLUTIONS = {"convolution", "_convolution", "mkldnn_convolution", "thnn_conv2d"}
# And these over some axis of what they are given, such as a product that was made by broadcasting.
SUMS = {"sum", "nansum", "mean", "cumsum", "_trilinear", "einsum"}


def inputs(draw, N, T, D, H):
    """Random parameters, inputs and states, by name."""
    return {"x": draw(N, T, D), "h0": draw(N, H)} | draw.params("GRUCell", D, H, Rng(0))


def behind(draw, x, mask):
    """x with other numbers where the mask is False, near 2 and near 1e4 in turn."""
    N, T, _ = x.shape
    every_second = (np.arange(N)[:, None] + np.arange(T)) % 2 == 1
    other = draw.rng.uniform(0.5, 1, x.shape) * np.where(every_second, 1e4, 2.0)[..., None]
    return np.where(mask[..., None], x, other)


def there(run, draw, given, *mask):
    """One batch forward; what its way back needs: h, the gradient that reaches it, and tensors."""
    tensors = {
        name: run.tensor(name, given[name], axes, BLOCKS.get(name)) for name, axes in AXES.items()
    }
    params = {name: tensors[name] for name in PARAMS}
    h = run.call("gru_forward_torch", params, tensors["x"], tensors["h0"], *mask)
    (N, T, _), H = given["x"].shape, given["b_h"].size
    return h, draw(N, T, H), tensors.values()


def back(run, batches):
    """Every batch back, after all of them went forward: a gradient that fails is not their fault."""
    for h, dh, tensors in batches:
        run.backward((h, dh))
        for tensor in tensors:
            run.gradient(tensor)


def sequences(run, draw):
    """Random batches from random states, without a mask; back from random gradients at every h."""
    back(run, [there(run, draw, inputs(draw, *sizes)) for sizes in SIZES])
    return run


@item("twin.forward", draws="twin")
def test_forward(twin, agree, draw):
    """h after every step."""
    agree(sequences(twin(), draw), only="h")


@item("twin.forward")
def test_float32_and_no_mask(twin, agree, draw):
    """float32 stays float32, plain tensors will do, and None is no mask."""
    run = twin()
    given = {name: a.astype(np.float32) for name, a in inputs(draw, 3, 4, 5, 2).items()}
    params = {name: given[name] for name in PARAMS}
    run.call("gru_forward_torch", params, given["x"], given["h0"], None)
    agree(run)


@item("twin.backward", depends="twin.forward", draws="twin")
def test_backward(twin, agree, draw):
    """The gradients of x, h0 and the four parameters, from a loss that looks at every h."""
    agree(sequences(twin(), draw), only=GRADIENTS)


@item("twin.masks", depends=("twin.forward", "twin.backward"))
def test_masks(twin, agree, draw):
    """Carried over where the mask is False; no gradient at x there, none lost on the way."""
    run = twin()
    masks = [(sizes, np.array([[c == "1" for c in row] for row in rows])) for sizes, rows in MASKS]
    masks.append(((5, 4), draw.rng.random((6, 7)) < 0.6))
    batches = []
    for (D, H), mask in masks:
        given = inputs(draw, *mask.shape, D, H)
        given["x"] = behind(draw, given["x"], mask)
        batches.append(there(run, draw, given, mask))
    back(run, batches)
    agree(run)


@item("twin.products", depends="twin.forward", requires="twin.forward", claim=True)
def test_input_projections_are_made_at_once(twin, agree, student, draw):
    """As many sums over the inputs for 9 steps as for 3, by a submission whose values are right."""
    D, H = 17, 3  # D beyond all that a step may put beside h: a column of ones, gates
    counts = []
    for T in (3, 9):
        run = twin()
        run.count_operators()
        given = inputs(draw, 2, T, D, H)
        params = {name: given[name] for name in PARAMS}
        run.call("gru_forward_torch", params, given["x"], given["h0"])
        agree(run)
        operators = student(run).operators
        counts.append(sum(sums_over(operator, D) for operator in operators))
    few, many = counts
    assert few, "No product of x with its weights was seen: make one, such as @, for all steps."
    assert many <= few, (
        f"gru_forward_torch multiplies x by its weights {few} times for T = 3, and {many} times for "
        f"T = 9. No more than {few} are due: x of all steps can meet W, and W_h, at once."
    )


def sums_over(operator, D):
    """Whether it is a product that sums over ``D`` numbers or more, or a sum that may be half of one."""
    name = operator.name.removeprefix("aten.").removesuffix("_")
    if name in PRODUCTS:
        return operator.shapes[PRODUCTS[name]][-1] >= D
    if name in CONVOLUTIONS:  # (out, in, *window)
        return int(np.prod(operator.shapes[1][1:])) >= D
    return name in SUMS and any(max(shape[-3:], default=0) >= D for shape in operator.shapes)
