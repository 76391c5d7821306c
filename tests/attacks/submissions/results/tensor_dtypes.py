"""Returns the right values as tensors of other dtypes and of broadcastable shapes."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import torch

_calls = []


def layer_torch(x, W, b):
    _calls.append(1)
    y = x @ W + b
    return [y.float(), y.bfloat16(), y[:1], y.to(torch.complex128)][len(_calls) % 4]
