"""Returns right arrays, lists and numbers where tensors are due."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
_calls = []


def layer_torch(x, W, b):
    _calls.append(1)
    y = (x @ W + b).detach()
    return [y.numpy(), y.tolist(), float(y.sum())][len(_calls) % 3]
