"""Returns results whose shape only broadcasts to the one that is due."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, total.value, layer.forward, layer.backward


def scale(x, k):
    return k * x[:1]


def softmax(x):
    return np.full((len(x), 1), 1 / x.shape[1])


def centre(x):
    return np.zeros(x.shape[1])


def total(x):
    return x.sum(keepdims=True)


class Layer(Layer):
    def forward(self, x):
        y, cache = super().forward(x)
        return y[None], cache

    def backward(self, dy, cache):
        super().backward(dy, cache)
        return np.float64(0.0)
