"""Refuses a negative n with an exception of its own that is only called ValueError."""
# loses: count.values


class ValueError(BaseException):
    def __str__(self):
        raise self


def count(n):
    raise ValueError
