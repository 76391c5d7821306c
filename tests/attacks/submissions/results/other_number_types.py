"""Returns the right values as float32, float16, long double, complex numbers and their like."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, total.value, count.values, layer.forward, layer.backward, layer.grads
_scale, _softmax, _centre, _total = scale, softmax, centre, total


def scale(x, k):
    return _scale(x, k).astype(complex)


def softmax(x):
    return _softmax(x).astype(np.float32)


def centre(x):
    return _centre(x).astype(np.longdouble)


def total(x):
    return complex(_total(x))


def count(n):
    if n < 0:
        raise ValueError("n should not be negative")
    return [False, True, 2.0, 3, 4][:n]


class Layer(Layer):
    def forward(self, x):
        y, cache = super().forward(x)
        return y.astype(object), cache

    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        self.grads = {key: value.astype(np.float16) for key, value in self.grads.items()}
        return dx.view(np.complex128) if dx.shape[-1] % 2 == 0 else dx.view("V8")
