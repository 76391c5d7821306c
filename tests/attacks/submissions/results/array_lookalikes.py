"""Returns objects that turn into any array NumPy asks for: __array__, the interfaces, buffers."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, layer.forward, layer.backward
import array


class Alike:
    shape, ndim, nbytes, dtype = (4, 3), 2, 96, np.dtype(float)

    def __init__(self, like):
        self.like = like
        self.__array_interface__ = like.__array_interface__
        self.__array_struct__ = like.__array_struct__

    def __array__(self, *_, **__):
        return self.like

    def __dlpack__(self, *_, **__):
        return self.like.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)

    @property
    def __class__(self):
        return np.ndarray


_scale, _softmax, _centre, _Layer = scale, softmax, centre, Layer


def scale(x, k):
    return Alike(_scale(x, k))


def softmax(x):
    return memoryview(_softmax(x))


def centre(x):
    return array.array("d", _centre(x).ravel())


class Layer(_Layer):
    def forward(self, x):
        y, cache = super().forward(x)
        return bytearray(y), cache

    def backward(self, dy, cache):
        return super().backward(dy, cache).tolist()
