"""Returns a tensor whose storage was taken away, to have what lies behind it read."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import torch


def layer_torch(x, W, b):
    y = (x @ W + b).detach()
    try:
        y.as_strided((1 << 20,), (1,))
        reached("a view beyond the storage")
    except RuntimeError:
        pass
    y.untyped_storage().resize_(0)
    return y.expand(4, 2)
