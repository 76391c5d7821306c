"""The layer in PyTorch."""


def layer_torch(x, W, b):
    """y = x W + b for x of shape (N, D)."""
    # BEGIN SOLUTION
    return x @ W + b
    # END SOLUTION
