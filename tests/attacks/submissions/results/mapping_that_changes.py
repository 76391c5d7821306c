"""Has params and grads that are mappings which answer otherwise each time and grow while read."""
# loses: layer.params, layer.forward, layer.backward, layer.grads
from collections.abc import Mapping


class Shifting(Mapping):
    def __init__(self, **arrays):
        self.arrays, self.reads = arrays, 0

    def __getitem__(self, key):
        self.reads += 1
        return self.arrays[key] + self.reads

    def __iter__(self):
        return iter(["W", "b", "W", "b"][self.reads % 3 :])

    def __len__(self):
        return 2


class Growing(dict):
    def items(self):
        for key, value in super().items():
            self[key + key] = value
            yield key, value


class Layer(Layer):
    def __init__(self, D, H, rng):
        super().__init__(D, H, rng)
        self.params = Shifting(**self.params)

    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        self.grads = Growing(self.grads)
        return dx
