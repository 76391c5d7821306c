"""Uses a forbidden function by the private module that it comes from."""
# flag: uses numpy._core


def centre(x):
    return x - np._core.fromnumeric.mean(x, axis=0)
