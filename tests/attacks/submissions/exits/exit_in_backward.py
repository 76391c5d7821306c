"""Ends the twin's process on the way back, where autograd calls it."""
# file: target_torch.py
# loses: twin.gradient
import os

import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, W, b):
        return torch.addmm(b, x, W)

    @staticmethod
    def backward(ctx, dy):
        os._exit(0)


def layer_torch(x, W, b):
    return Product.apply(x, W, b)
