"""Returns tensors that are huge, or that have a shape of 10**12 entries and one of them in memory."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import torch

_calls = []


def layer_torch(x, W, b):
    _calls.append(1)
    if len(_calls) % 2:
        return torch.zeros(()).expand(10**6, 10**6)
    return torch.zeros(5 << 20)
