"""Returns generators, iterators and ranges that would make each value when it is asked for."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, total.value, count.values
_scale, _softmax, _centre, _total = scale, softmax, centre, total


def scale(x, k):
    return (row for row in _scale(x, k))


def softmax(x):
    return iter(_softmax(x))


def centre(x):
    return lambda: _centre(x)


def total(x):
    yield _total(x)


def count(n):
    if n < 0:
        raise ValueError("n should not be negative")
    return range(n)
