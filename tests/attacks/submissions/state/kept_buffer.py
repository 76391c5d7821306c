"""Returns the same array from every call, and fills it anew each time."""

buffer = np.zeros(100)


def scale(x, k, kept=[]):
    kept.append(buffer[: x.size].reshape(x.shape))
    kept[-1][...] = k * x
    return kept[-1]


def centre(x, kept={}):
    result = kept.setdefault(x.shape, np.empty_like(x))
    np.subtract(x, x.sum(axis=0) / len(x), out=result)
    return result


class Layer(Layer):
    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        kept = self.__dict__.setdefault("kept", self.grads)
        for name, grad in self.grads.items():
            kept[name][...] = grad
        self.grads = kept
        return dx
