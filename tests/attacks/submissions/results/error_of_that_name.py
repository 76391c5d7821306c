"""Refuses a negative n with an exception of its own that is only called ValueError."""
# loses: count.errors

_count = count


class ValueError(BaseException):
    pass


def count(n):
    if n < 0:
        raise ValueError
    return _count(n)
