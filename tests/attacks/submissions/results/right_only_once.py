"""Answers right the first time it is called or read, and with zeros from then on."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, layer.forward, layer.backward, layer.grads


def once(function):
    calls = []

    def call(x, *rest):
        calls.append(1)
        return function(x, *rest) if len(calls) == 1 else np.zeros(x.shape)

    return call


scale, softmax, centre = once(scale), once(softmax), once(centre)


class Layer(Layer):
    calls = 0

    def forward(self, x):
        self.calls += 1
        y, cache = super().forward(x)
        return (y if self.calls == 1 else 0 * y), cache

    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        self.grads = {key: g * (self.calls == 1) for key, g in self.grads.items()}
        return dx * (self.calls == 1)
