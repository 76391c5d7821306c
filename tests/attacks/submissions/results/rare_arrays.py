"""Returns masked arrays, matrices, records and memory maps that show other values than they hold."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, total.value, layer.forward, layer.backward
_scale, _softmax, _centre, _total = scale, softmax, centre, total


def scale(x, k):
    return np.ma.masked_array(np.zeros(x.shape), mask=True, fill_value=1.0)


def softmax(x):
    return np.ma.masked_all(x.shape)


def centre(x):
    return np.matrix(_centre(x).ravel())


def total(x):
    return np.array(_total(x), object)


class Layer(Layer):
    def forward(self, x):
        y, cache = super().forward(x)
        return np.rec.fromarrays([y]), cache

    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        return np.ndarray.__new__(np.memmap, dx.shape, float, np.zeros(dx.shape))
