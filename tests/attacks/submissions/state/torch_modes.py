"""Leaves modes and hooks behind in PyTorch that hide its operators and change gradients."""
# file: target_torch.py
# loses: twin.gradient
# claim: twin.products
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Hide(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: 2 * t).__enter__()


def layer_torch(x, W, b):
    with torch.utils._python_dispatch._disable_current_modes():
        y = sum(x[:, n : n + 1] @ W[n : n + 1] for n in range(len(W))) + b
    torch.mm(x.detach(), W.detach())
    return y
