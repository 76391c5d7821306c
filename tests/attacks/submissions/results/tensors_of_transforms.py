"""Returns tensors that leaked out of vmap, grad and functionalize, and tensors of other layouts."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import torch

_calls, _leaked = [], []


def _leak(transform):
    def call(y):
        _leaked.append(y * 1)
        return y.sum()

    return lambda y: (transform(call)(y), _leaked[-1])[1]


def layer_torch(x, W, b):
    _calls.append(1)
    y = -(x @ W + b).detach()
    ways = [
        _leak(torch.func.vmap),
        _leak(torch.func.grad),
        _leak(torch.func.functionalize),
        lambda y: y.float().to_mkldnn(),
        lambda y: y.refine_names("N", "H"),
        lambda y: y.to_sparse_csr(),
    ]
    for way in ways[len(_calls) % 3 :]:
        try:
            if (found := way(y)) is not None:
                return found
        except Exception:
            pass
    raise RuntimeError("nothing of that can be made")
