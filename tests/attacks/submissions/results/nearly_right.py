"""Returns values that are off by little: rounded, in one entry only, by a small step everywhere."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, total.value, layer.params, layer.forward, layer.backward, layer.grads
_scale, _softmax, _centre, _total = scale, softmax, centre, total


def scale(x, k):
    return _scale(x, k).astype(np.float32).astype(float)


def softmax(x):
    return _softmax(x) * (1 + 4e-10)


def centre(x):
    y = _centre(x)
    least = np.unravel_index(np.abs(y).argmin(), y.shape)
    y[least] += 4e-10 * np.abs(y).max()
    return y


def total(x):
    return _total(x) * (1 - 4e-10)


class Layer(Layer):
    def __init__(self, D, H, rng):
        super().__init__(D, H, rng)
        self.params["b"] = self.params["b"] + 1e-9

    def forward(self, x):
        y, cache = super().forward(x)
        return np.round(y, 8), cache

    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        self.grads = {key: value - 1e-8 for key, value in self.grads.items()}
        dx[0, 0] = 0
        return dx
