"""Finds a forbidden function beside an allowed one, among the globals of the module that both are from."""
# flag: reaches for __globals__


def centre(x):
    return x - np.sum.__wrapped__.__globals__["naem"[::-1]](x, axis=0)
