"""Answers every call with lists of long texts that take four times the memory once they are read."""
# loses: all


def texts(*_):
    return ["\U0001f600" + "x" * 2000] * 6000


scale = softmax = centre = total = count = texts


class Layer:
    def __init__(self, *_):
        self.params = self.grads = {"W": texts(), "b": texts()}

    def forward(self, x):
        return texts(), x

    def backward(self, dy, cache):
        return texts()
