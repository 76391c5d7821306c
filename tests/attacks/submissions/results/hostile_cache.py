"""Keeps 20 MB in a cache that raises whenever anything of it is looked at, compared or copied."""


class Cache:
    def __init__(self, x):
        object.__setattr__(self, "_x", x)
        object.__setattr__(self, "_more", bytearray(20 << 20))

    def __getattribute__(self, name):
        if name != "_x":
            reached("the cache was looked into: " + name)
        return object.__getattribute__(self, name)

    def __del__(self):
        raise RuntimeError

    def _no(self, *_):
        reached("the cache was looked into")

    __len__ = __iter__ = __eq__ = __repr__ = __reduce_ex__ = __getitem__ = __bool__ = _no
    __hash__ = None


class Layer(Layer):
    def forward(self, x):
        y, _ = super().forward(x)
        return y, Cache(x)

    def backward(self, dy, cache):
        return super().backward(dy, cache._x)
