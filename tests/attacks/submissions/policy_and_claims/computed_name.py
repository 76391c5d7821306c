"""Gets a forbidden function by a name that it makes while it runs."""
# flag: looks something up in numpy by a computed name


def centre(x):
    return x - getattr(np, "naem"[::-1])(x, axis=0)
