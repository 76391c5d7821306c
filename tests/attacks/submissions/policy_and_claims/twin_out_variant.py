"""Calls the variant of the forbidden operator that writes to a given tensor, with gradients of its own."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(context, x, W, b):
        context.save_for_backward(W)
        return torch.ops.aten.linear.out(x, W.T, b, out=torch.empty(len(x), W.shape[1]))

    @staticmethod
    def backward(context, dy):
        (W,) = context.saved_tensors
        return dy @ W.T, None, None


def layer_torch(x, W, b):
    return Product.apply(x, W, b)
