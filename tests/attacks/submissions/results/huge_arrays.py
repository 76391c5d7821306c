"""Returns arrays of 60 and 70 MB, and one of 10**12 entries that holds none of them."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, layer.forward


class Small(np.ndarray):
    nbytes = property(lambda self: 8)


def scale(x, k):
    return np.zeros(60 << 17)


def softmax(x):
    return np.zeros(70 << 17).view(Small)


def centre(x):
    return np.broadcast_to(np.zeros(1), (10**6, 10**6)).view(Small)


class Layer(Layer):
    def forward(self, x):
        return np.broadcast_to(np.zeros(1), (10**6, 10**6)), x
