"""Returns the tensor it was given, resized and overwritten in place to be the answer."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products


def layer_torch(x, W, b):
    x.data = x.data[:, :2]
    return x
