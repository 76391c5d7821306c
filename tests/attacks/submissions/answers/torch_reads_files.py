"""Has PyTorch read the solution and the results, by its own ways to load and to map files."""

# file: target_torch.py
# loses: twin.values, twin.gradient, twin.products
import os

import torch

PATHS = ("@course@/solutions/00_target/target.py", "@out@/results/earlier.json", "@home@")


def layer_torch(x, W, b):
    last = None
    for path in PATHS:
        for way in (
            lambda p: torch.UntypedStorage.from_file(p, False, 64).tolist(),
            lambda p: torch.from_file(p, size=64, dtype=torch.uint8).tolist(),
            lambda p: torch._C._LegacyStorage,
            lambda p: torch._C.PyTorchFileReader(p),
            lambda p: torch.load(p, weights_only=False),
            lambda p: torch.ops.load_library(p),
            lambda p: torch.classes.load_library(p),
            lambda p: torch.jit.load(p),
            lambda p: torch.hub._read_archive(p),
            lambda p: torch.save(x, os.path.dirname(p) + "/forged.pt"),
        ):
            try:
                found = way(path)
            except (OSError, RuntimeError, AttributeError, ValueError) as error:
                last = last or error
            else:
                if isinstance(found, list):
                    reached(f"{path}: {len(found)} bytes")
    raise last
