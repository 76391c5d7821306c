"""Makes three products where one is asked for, and leaves the mode that counts them for two."""
# file: target_torch.py
# claim: twin.products
# flag: imports threading
import threading

import torch
from torch.utils._python_dispatch import _disable_current_modes


def layer_torch(x, W, b):
    def more():
        x.detach() @ W

    thread = threading.Thread(target=more)
    thread.start()
    thread.join()
    with _disable_current_modes():
        x.detach() @ W
    return x @ W + b
