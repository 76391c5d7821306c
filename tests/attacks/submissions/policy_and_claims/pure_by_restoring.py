"""Changes its argument and puts it back before it returns, which is as good as not to change it."""


def centre(x):
    kept = x.copy()
    x -= x.sum(axis=0) / len(x)
    y = x.copy()
    x[:] = kept
    return y
