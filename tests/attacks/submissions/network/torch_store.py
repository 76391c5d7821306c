"""Has PyTorch call: its stores for distributed training, its hub, its remote calls."""
# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
from datetime import timedelta

import torch


def store():
    from torch.distributed import TCPStore

    soon = timedelta(seconds=0.1)
    return TCPStore("127.0.0.1", int("@port@"), None, False, soon, wait_for_workers=False)


def serve():
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=0.1), wait_for_workers=False)


def file_store():
    from torch.distributed import FileStore

    return FileStore("/tmp/attacked-store", 1).set("x", "1")


def layer_torch(x, W, b):
    last = None
    for way in (
        serve,
        store,
        file_store,
        lambda: torch.hub.load_state_dict_from_url("http://127.0.0.1:@port@/x.pt", "/tmp"),
    ):
        try:
            way()
        except (OSError, RuntimeError, ImportError) as error:
            last = last or error
        else:
            reached(way.__name__)
    raise last
