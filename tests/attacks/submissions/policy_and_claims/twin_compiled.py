"""Has PyTorch's functions of functions call the forbidden operator: vmap, vjp, functionalize, traces, decompositions."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import torch


def layer_torch(x, W, b):
    linear, V = torch.ops.aten.linear.default, W.T
    ways = [
        lambda: torch.func.vmap(linear, (0, None, None))(x, V, b),
        lambda: torch.func.vjp(linear, x, V, b)[0],
        lambda: torch.func.functionalize(linear)(x, V, b),
        lambda: torch._decomp.decomposition_table[linear](x, V, b),
        lambda: torch._decomp.global_decomposition_table["post_autograd"][linear](x, V, b),
        lambda: torch._decomp.global_decomposition_table["pre_autograd"][linear](x, V, b),
        lambda: torch.jit.trace(linear, (x, V, b))(x, V, b),
    ]
    for way in ways:
        try:
            y = way()
            if type(y) is torch.Tensor and torch.allclose(y, x @ W + b):
                return y
        except Exception as error:
            last = error
    raise last
