"""Has PyTorch call: its stores for distributed training and its hub."""

# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
from datetime import timedelta

import torch

SOON = timedelta(seconds=0.01)


def store(port, serves):
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", port, None, serves, SOON, wait_for_workers=False)


def layer_torch(x, W, b):
    last = None
    for way in (
        lambda: store(0, True),
        lambda: torch.distributed.FileStore("/scratch/attacked", 1).set("x", "1"),
        lambda: torch.hub.download_url_to_file("http://127.0.0.1:@port@/x", "x", progress=False),
        lambda: store(int("@port@"), False),
    ):
        try:
            way()
        except (OSError, RuntimeError, ImportError) as error:
            last = getattr(error, "reason", error) if last is None or "perm" in str(error) else last
        else:
            reached("a store")
    raise last
