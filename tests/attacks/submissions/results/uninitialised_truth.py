"""Returns truth values that are neither true nor false, as memory that was never written to holds them."""
# loses: scale.values, softmax.values, softmax.quiet, layer.forward, layer.backward


def scale(x, k):
    return np.full(x.shape, 7, np.uint8).view(bool)


def softmax(x):
    return np.full((), 2, np.uint8).view(bool)[()]


class Layer(Layer):
    def forward(self, x):
        return np.full((len(x), 2), 255, np.uint8).view(np.bool_), x

    def backward(self, dy, cache):
        super().backward(dy, cache)
        return {"dx": np.full(3, 2, np.uint8).view(bool)}
