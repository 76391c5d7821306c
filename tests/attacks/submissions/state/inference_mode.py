"""Enters PyTorch's inference mode while it is imported and never leaves it."""
# file: target_torch.py
# loses: twin.gradient
import torch

mode = torch.inference_mode()
mode.__enter__()


def layer_torch(x, W, b):
    return torch.addmm(b, x, W)
