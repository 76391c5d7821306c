"""Seeds NumPy's generator and has every other one give zeros."""
# loses: layer.params
np.random.seed(0)


class Zeros:
    def __init__(self, *_, **__):
        pass

    def standard_normal(self, size=None, **_):
        return np.zeros(size)

    def __getattr__(self, name):
        return lambda *_, size=None, **__: np.zeros(size or 1)


np.random.default_rng = np.random.Generator = np.random.RandomState = Zeros
np.random.standard_normal = np.random.randn = Zeros().standard_normal
