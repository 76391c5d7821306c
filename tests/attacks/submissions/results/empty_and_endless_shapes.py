"""Returns empty arrays whose other axes are of 10**8 to 2**59 entries."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure


def scale(x, k):
    return np.zeros((0, 10**8))


def softmax(x):
    return np.zeros((1 << 59, 0))


def centre(x):
    return np.zeros((0, 1 << 29, 1 << 30))
