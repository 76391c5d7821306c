"""Returns the right bytes as structures, strings, dates, void and objects."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, total.value, layer.forward, layer.backward, layer.grads
_scale, _softmax, _centre, _total = scale, softmax, centre, total


def scale(x, k):
    return _scale(x, k).view([("re", "f8")])


def softmax(x):
    return _softmax(x).view("M8[ns]")


def centre(x):
    return _centre(x).astype(str)


def total(x):
    return np.array([(_total(x),)], [("s", "f8")])[0]


class Layer(Layer):
    def forward(self, x):
        y, cache = super().forward(x)
        return y.view("V8"), cache

    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        self.grads = {key: value.view("m8[s]") for key, value in self.grads.items()}
        self.grads["b"] = np.array(object(), object)
        return dx.view("S8")
