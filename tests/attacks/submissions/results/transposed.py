"""Returns transposes, which hold the right values and, of square arrays, have the right shape."""
# loses: scale.values, layer.params, layer.backward, layer.grads
_scale = scale


def scale(x, k):
    return _scale(x, k).T


class Layer(Layer):
    def __init__(self, D, H, rng):
        super().__init__(D, H, rng)
        self.params["W"] = self.params["W"].T

    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        self.grads["W"] = np.asfortranarray(self.grads["W"]).T
        return dx.T
