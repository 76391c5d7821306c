"""Returns an integer of a million digits, a text of 100 MB, and lists nested 100,000 deep."""
# loses: scale.values, total.value, count.values, layer.params, layer.backward


def scale(x, k):
    return "0" * 10**8


def total(x):
    return 1 << 3_000_000


def count(n):
    if n < 0:
        raise ValueError("n should not be negative")
    deep = []
    for _ in range(10**5):
        deep = [deep]
    itself = [0, 1, 2, 3, deep]
    itself[0] = itself
    return itself


class Layer(Layer):
    def __init__(self, D, H, rng):
        super().__init__(D, H, rng)
        self.params["9" * 10**7] = self.params

    def backward(self, dy, cache):
        super().backward(dy, cache)
        return bytes(10**7)
