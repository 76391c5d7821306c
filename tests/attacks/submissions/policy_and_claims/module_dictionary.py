"""Looks a forbidden function up in the dictionary of its module."""
# flag: uses vars()


def centre(x):
    return x - vars(np)["naem"[::-1]](x, axis=0)
