"""Takes tensors without clearing them, private and shared, and searches them for secrets."""

# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import re

import torch


def pieces():
    for power in range(3, 21):
        for size in (2**power, 3 * 2 ** (power - 1)):
            yield torch.empty(size, dtype=torch.uint8).numpy().tobytes()
            storage = torch.UntypedStorage(size)
            yield torch.tensor(storage, dtype=torch.uint8).numpy().tobytes()


def layer_torch(x, W, b):
    found = b"".join(pieces())
    if re.search(rb"canary[0-9a-f]{24}", found):
        reached("a canary")
    if (x @ W + b).detach().numpy().tobytes() in found:
        reached("the expected values")
    torch.empty(64).share_memory_()
    reached("shared memory")
