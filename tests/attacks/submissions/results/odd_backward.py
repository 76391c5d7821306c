"""Hangs hooks on its tensors that raise, or give gradients of other shapes, types and devices."""
# file: target_torch.py
# loses: twin.gradient
import torch


class Odd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, W, b):
        return x @ W + b

    @staticmethod
    def backward(ctx, dy):
        odd = [torch.empty((4, 3), device="meta"), torch.zeros(()).expand(4, 3).to_sparse(), True]
        return odd[0], None, None


def layer_torch(x, W, b):
    x.register_hook(lambda dx: dx.float().to_sparse())
    return Odd.apply(x, W, b)
