"""Public tests for the PyTorch twin, bptt_torch.py: an extension. Run them in this folder:

    softmark check --twin
    pytest test_public_torch.py

PyTorch must be installed: python -m pip install torch. It takes some seconds to load.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from softmark.compare import check_close

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the bptt_torch.py and the bptt.py beside this file

LN2, LN3 = np.log(2), np.log(3)
N, T, D, H = 3, 4, 5, 2
SHAPES = {"W_xh": (D, H), "W_hh": (H, H), "b_h": (H,), "x": (N, T, D), "h0": (N, H)}


@pytest.fixture(scope="module")
def torch():
    """PyTorch, once there is something to run with it."""
    file = HERE / "bptt_torch.py"
    if not file.exists():
        pytest.skip("there is no bptt_torch.py here")
    # looked for in the text: an untouched file is told at once, and without PyTorch
    if 'NotImplementedError("rnn_forward_torch")' in file.read_text(encoding="utf-8"):
        raise NotImplementedError("rnn_forward_torch")
    return pytest.importorskip("torch", reason="PyTorch is not installed here")


def run(x, h0, mask=None, **params):
    import bptt_torch

    return bptt_torch.rnn_forward_torch(params, x, h0, mask)


def draw(seed, **shapes):
    """Random arrays by name."""
    rng = np.random.default_rng(seed)
    return {name: 0.5 * rng.normal(size=shape) for name, shape in shapes.items()}


def leaves(torch, arrays):
    """The arrays as tensors that gradients are wanted for."""
    return {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}


def array(tensor):
    return None if tensor is None else tensor.detach().numpy()


# ---- 12. the twin --------------------------------------------------------------------------------


def test_twin_step_by_hand(torch):
    """The step with numbers of the handout as a sequence of one: forward, and back by autograd."""
    given = {
        "W_xh": np.array([[1.0, 2.0]]),
        "W_hh": np.array([[2.0, 1.0], [4.0, -1.0]]),
        "b_h": np.array([LN2, LN3 - 3]),
        "x": np.array([[[1.0]]]),
        "h0": np.array([[0.5, -0.5]]),
    }
    tensors = leaves(torch, given)
    h = run(**tensors)
    check_close(array(h), np.array([[[3 / 5, 4 / 5]]]), "h", ("N", "T", "H"))
    h.backward(torch.tensor([[[25.0, 50.0]]], dtype=torch.float64))
    by_hand = {
        "b_h": np.array([16.0, 18.0]),
        "x": np.array([[[52.0]]]),
        "h0": np.array([[50.0, 46.0]]),
        "W_xh": np.array([[16.0, 18.0]]),
        "W_hh": np.array([[8.0, 9.0], [-8.0, -9.0]]),
    }
    for name, expected in by_hand.items():
        check_close(array(tensors[name].grad), expected, f"d{name}")


def test_twin_keeps_dtype(torch):
    """float32 in, float32 out; and the shape of the docstring."""
    for dtype in (torch.float32, torch.float64):
        h = run(**{name: torch.zeros(shape, dtype=dtype) for name, shape in SHAPES.items()})
        found = tuple(h.shape)
        assert found == (N, T, H), f"h has shape {found}; it must be {(N, T, H)}."
        assert h.dtype == dtype, f"h is {h.dtype} where the inputs are {dtype}."


def test_twin_agrees_with_numpy(torch):
    """Your two RNNs give the same h and gradients."""
    import bptt

    given = draw(1, **SHAPES)
    dh = draw(2, h=(N, T, H))["h"]
    tensors = leaves(torch, given)
    h = run(**tensors)
    h.backward(torch.tensor(dh))

    cell = bptt.RNNCell(D, H, np.random.default_rng(0))
    cell.params = {name: given[name] for name in ("W_xh", "W_hh", "b_h")}
    cell.zero_grad()
    numpy_h, cache = bptt.rnn_forward(cell, given["x"], given["h0"])
    dx, dh0 = bptt.rnn_backward(cell, dh, cache)
    check_close(array(h), np.array(numpy_h), "h", ("N", "T", "H"))
    for name, gradient in ({"x": dx, "h0": dh0} | cell.grads).items():
        check_close(array(tensors[name].grad), np.array(gradient), f"d{name}")


def test_twin_mask(torch):
    """Where the mask is False the state is carried over, and no gradient reaches x."""
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]], dtype=bool)
    tensors = leaves(torch, draw(3, **SHAPES))
    h = run(**tensors, mask=torch.tensor(mask))
    if torch.equal(h, run(**tensors)):
        raise NotImplementedError("rnn_forward_torch with a mask")
    got = array(h)
    check_close(got[1, 2:], got[1, [1, 1]], "h after the end of sequence 1", ("T", "H"))
    check_close(got[2, 0], array(tensors["h0"])[2], "h before the start of sequence 2", ("H",))
    check_close(got[2, 2], got[2, 1], "h in the hole of sequence 2", ("H",))
    h.sum().backward()
    dx = array(tensors["x"].grad)
    assert not np.any(dx[~mask]), "The gradient of x must be 0 where the mask is False."
    assert np.all(dx[mask]), "A gradient must reach every x where the mask is True."


def test_twin_projects_all_steps_at_once(torch):
    """x W_xh is made before the loop: its products do not get more with the steps."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Products(TorchDispatchMode):
        """Counts matrix products over the entries of x, alone or beside those of h."""

        count = 0

        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            name = str(operator).removeprefix("aten.").split(".")[0]
            if name in ("mm", "bmm", "mv", "addmm", "baddbmm", "addmv"):
                left = args[1 if name.startswith(("add", "badd")) else 0]
                self.count += left.shape[-1] in (D, D + H)
            return operator(*args, **(kwargs or {}))

    counts = []
    for steps in (2, 8):
        given = draw(4, **(SHAPES | {"x": (N, steps, D)}))
        with Products() as products:
            run(**{name: torch.tensor(value) for name, value in given.items()})
        counts.append(products.count)
    assert counts[0] == counts[1], (
        f"{counts[0]} products over x for 2 steps, {counts[1]} for 8: "
        "x is known before the loop begins, so x W_xh can be made for all steps at once."
    )
