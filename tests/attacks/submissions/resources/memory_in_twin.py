"""Takes memory by PyTorch, which has its own ways to get it, at once and in pieces."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import torch


def layer_torch(x, W, b):
    size = 50 << 30
    ways = [
        lambda: torch.zeros(size, dtype=torch.uint8),
        lambda: torch.empty(size, dtype=torch.uint8).fill_(1),
        lambda: torch.UntypedStorage(size),
        lambda: torch.UntypedStorage._new_shared(size),
        lambda: torch.ones(1).expand(1 << 33).clone(),
        lambda: [torch.empty(1 << 23) for _ in range(1 << 9)],
    ]
    for number, way in enumerate(ways):
        try:
            way()
            reached(f"way {number}")
        except (MemoryError, RuntimeError) as error:
            if "REACHED" in str(error):
                raise
            last = error
    raise last
