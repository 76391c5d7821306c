"""Returns a right tensor of a class that overrides numpy, detach, shape, dtype and its memory."""
# file: target_torch.py
# loses: twin.gradient
import torch


class Odd(torch.Tensor):
    def numpy(self, *_, **__):
        return np.zeros((4, 2))

    def detach(self):
        return torch.zeros(4, 2)

    shape = property(lambda self: (7, 7))
    dtype = property(lambda self: torch.int8)
    __array__ = data_ptr = tolist = clone = numpy


def layer_torch(x, W, b):
    return (x @ W + b).as_subclass(Odd)
