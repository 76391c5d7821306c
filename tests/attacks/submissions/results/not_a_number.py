"""Returns NaN, infinity and signalling NaN, for a comparison that NaN is never larger than."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, total.value, layer.params, layer.forward, layer.backward, layer.grads


def scale(x, k):
    return np.full(x.shape, 0x7FF0000000000001).view(float)


def softmax(x):
    return np.full(x.shape, np.nan)


def centre(x):
    return np.full(x.shape, -np.inf)


def total(x):
    return float("nan")


class Layer:
    def __init__(self, D, H, rng):
        self.params = self.grads = {"W": np.full((D, H), np.inf), "b": np.full(H, np.nan)}

    def forward(self, x):
        return np.where(np.arange(2), np.inf, np.nan) * np.ones((len(x), 1)), x

    def backward(self, dy, cache):
        self.grads = {"W": np.full((3, 2), 1e308), "b": np.full(2, -0.0)}
        return np.full(cache.shape, -1e308)
