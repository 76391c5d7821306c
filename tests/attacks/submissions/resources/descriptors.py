"""Opens files until the machine has no descriptors left."""
# loses: scale.values
import os
import resource


def scale(x, k):
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))
    except (OSError, ValueError):
        pass
    try:
        while len(held) < 5000:
            held += [os.open("/dev/null", os.O_RDONLY), os.dup(1), os.dup(3)]
        reached(f"{len(held)} descriptors")
    finally:
        for descriptor in held:
            os.close(descriptor)
