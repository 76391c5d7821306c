"""Returns tensors whose memory holds the right values and that are to be read with another sign."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import torch

_calls = []


def layer_torch(x, W, b):
    _calls.append(1)
    y = x @ W + b
    return [torch._neg_view(y), torch.complex(y, 0 * y).conj()][len(_calls) % 2]
