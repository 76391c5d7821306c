"""Returns dicts with keys missing, in excess, of other types, and two of one name."""
# loses: layer.params, layer.grads


class Key(str):
    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


class Layer(Layer):
    def __init__(self, D, H, rng):
        super().__init__(D, H, rng)
        b, W = self.params["b"], self.params["W"]
        self.params = {Key("W"): W, Key("b"): b, "b": b + 1}

    def forward(self, x):
        return x @ self.params["W"] + self.params["b"], x

    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        W, b = self.grads["W"], self.grads["b"]
        self.grads = {b"W": W, "w": W, ("b",): b, 0: b, None: b, "B": b}
        return dx
