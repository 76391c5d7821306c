"""Returns meta, sparse, fake and wrapped tensors, which have no memory to read."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

_calls = []


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, like):
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return torch.ones(())


def _ways(y):
    yield lambda: Wrapped(y)
    yield lambda: FakeTensorMode().from_tensor(y)
    yield lambda: y.to("meta")
    yield lambda: y.to_sparse()
    yield lambda: torch.nested.nested_tensor(list(y))
    yield lambda: torch.quantize_per_tensor(y.float(), 0.1, 0, torch.qint8)


def layer_torch(x, W, b):
    _calls.append(1)
    for way in list(_ways((x @ W + b).detach()))[len(_calls) % 3 :]:
        try:
            return way()
        except Exception:
            pass
    raise RuntimeError("nothing of that can be made")
