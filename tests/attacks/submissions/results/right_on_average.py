"""Returns values whose mean, sum and norm are right, and whose entries are not."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, layer.forward, layer.backward, layer.grads
_scale, _softmax, _centre, _Layer = scale, softmax, centre, Layer


def scale(x, k):
    return np.full(x.shape, _scale(x, k).mean())


def softmax(x):
    return np.full(x.shape, 1 / x.shape[-1])


def centre(x):
    return np.sort(_centre(x).ravel()).reshape(x.shape)


class Layer(_Layer):
    def forward(self, x):
        y, cache = super().forward(x)
        return np.full(y.shape, y.mean()), cache

    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        self.grads = {key: np.full(g.shape, g.mean()) for key, g in self.grads.items()}
        return np.full(dx.shape, np.sqrt((dx**2).mean()))
