"""Returns the right bytes under other strides, shapes and byte orders, for a comparison of memory."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, layer.forward, layer.backward
_scale, _softmax, _centre, _Layer = scale, softmax, centre, Layer


def scale(x, k):
    return _scale(x, k).view(">f8")


def softmax(x):
    return _softmax(x)[::-1, ::-1]


def centre(x):
    return _centre(x).T.reshape(x.shape)


class Layer(_Layer):
    def forward(self, x):
        y, cache = super().forward(x)
        return y.reshape(y.shape[::-1]).T, cache

    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        raw = np.empty(dx.nbytes + 1, np.uint8)
        unaligned = raw[1:].view(float).reshape(dx.shape)
        unaligned[...] = dx
        return unaligned.byteswap()
