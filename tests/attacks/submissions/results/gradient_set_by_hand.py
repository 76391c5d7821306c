"""Sets x.grad itself, by hooks and from a thread, in place of a gradient that reaches it."""
# file: target_torch.py
# loses: twin.gradient
import torch


def layer_torch(x, W, b):
    x.grad = torch.ones_like(x)
    x.register_hook(lambda dx: 0 * dx)
    x.register_post_accumulate_grad_hook(lambda x: x.grad.fill_(1))
    y = x.detach() @ W + b
    y.register_hook(lambda dy: x.grad.mul_(2))
    return y
