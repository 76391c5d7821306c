"""Loops in C without ever giving back the interpreter's lock: a giant power."""
# loses: total.value


def total(x):
    return float(7 ** (3**24) % 10)
