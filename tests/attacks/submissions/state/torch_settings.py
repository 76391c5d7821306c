"""Changes PyTorch's default dtype, device, threads, seed and gradient mode, at import and in calls."""
# file: target_torch.py
import torch


def spoil():
    torch.set_default_dtype(torch.float16)
    torch.set_default_device("meta")
    torch.set_num_threads(8)
    torch.use_deterministic_algorithms(False)
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    torch.set_printoptions(precision=0)
    torch.set_flush_denormal(True)
    torch.autograd.set_detect_anomaly(True)
    torch.set_default_tensor_type = torch.float64 = torch.float16


spoil()


def layer_torch(x, W, b):
    y = torch.addmm(b, x, W)
    spoil()
    return y
