"""Returns a tensor of its own class, whose __torch_function__ says yes to all."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import torch


class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True


def layer_torch(x, W, b):
    return torch.zeros(4, 2).as_subclass(Yes)
