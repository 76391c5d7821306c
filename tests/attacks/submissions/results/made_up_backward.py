"""Sends back a gradient that answers anything: zeros, its own input, the values that arrived."""
# file: target_torch.py
# loses: twin.gradient
import torch


class Made(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, W, b):
        ctx.save_for_backward(x)
        return x @ W + b

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return x.detach(), None, None


def layer_torch(x, W, b):
    return Made.apply(x, W, b)
