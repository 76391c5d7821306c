"""Replaces Layer by an object that claims to be of every class and to have every attribute."""
# loses: layer.params, layer.forward, layer.backward, layer.grads


class Anything:
    def __init__(self, *_):
        pass

    def __getattr__(self, name):
        return self

    def __call__(self, *_, **__):
        return self

    def __iter__(self):
        return iter((self, self))

    def __eq__(self, other):
        return True

    def __len__(self):
        return 2

    __class__ = property(lambda self: tuple)
    __getitem__ = __call__
    __hash__ = None


Layer = Anything
