"""Right, and unlike the reference: one gate after the other, dicts for caches, and much printing."""

import numpy

print("loading my GRU")


def squash(a):
    s = numpy.empty_like(a)
    up = a >= 0
    s[up] = 1 / (1 + numpy.exp(-a[up]))
    grown = numpy.exp(a[~up])
    s[~up] = grown / (1 + grown)
    return s


class GRUCell:
    def __init__(self, input_dim, hidden_dim, rng):
        D = self.D = input_dim
        H = self.H = hidden_dim
        self.params = {
            "W": rng.standard_normal((D + H, 2 * H)) / (D + H) ** 0.5,
            "b": numpy.zeros(2 * H),
            "W_h": rng.standard_normal((D + H, H)) / (D + H) ** 0.5,
            "b_h": numpy.zeros(H),
        }
        self.grads = {}
        self.zero_grad()

    def zero_grad(self):
        for name, param in self.params.items():
            self.grads[name] = 0 * param

    def _parts(self):
        """The six matrices and three biases."""
        D, H, W, b, V = self.D, self.H, self.params["W"], self.params["b"], self.params["W_h"]
        return {
            "r": (W[:D, :H], W[D:, :H], b[:H]),
            "z": (W[:D, H:], W[D:, H:], b[H:]),
            "h": (V[:D], V[D:], self.params["b_h"]),
        }

    def forward(self, x, h_prev):
        parts = self._parts()
        cache = {"x": x, "h_prev": h_prev}
        for gate in ("r", "z"):
            by_x, by_h, bias = parts[gate]
            cache[gate] = squash(numpy.dot(x, by_x) + numpy.dot(h_prev, by_h) + bias)
        by_x, by_h, bias = parts["h"]
        cache["seen"] = cache["r"] * h_prev
        cache["new"] = numpy.tanh(numpy.dot(x, by_x) + numpy.dot(cache["seen"], by_h) + bias)
        return h_prev + cache["z"] * (cache["new"] - h_prev), cache

    def backward(self, dh, cache):
        D, H, parts = self.D, self.H, self._parts()
        x, h_prev, r, z = cache["x"], cache["h_prev"], cache["r"], cache["z"]
        dnew = dh * z
        dz = dh * cache["new"] - dh * h_prev
        dh_prev = dh - dh * z

        a_new = dnew - dnew * cache["new"] ** 2
        by_x, by_h, _ = parts["h"]
        self.grads["W_h"][:D] += numpy.dot(x.T, a_new)
        self.grads["W_h"][D:] += numpy.dot(cache["seen"].T, a_new)
        self.grads["b_h"] += numpy.sum(a_new, axis=0)
        dx = numpy.dot(a_new, by_x.T)
        dseen = numpy.dot(a_new, by_h.T)
        dh_prev = dh_prev + dseen * r

        slopes = {"r": dseen * h_prev * r * (1 - r), "z": dz * z * (1 - z)}
        for gate, block in (("z", slice(H, 2 * H)), ("r", slice(0, H))):
            by_x, by_h, _ = parts[gate]
            self.grads["W"][:D, block] += numpy.dot(x.T, slopes[gate])
            self.grads["W"][D:, block] += numpy.dot(h_prev.T, slopes[gate])
            self.grads["b"][block] += numpy.sum(slopes[gate], axis=0)
            dx = dx + numpy.dot(slopes[gate], by_x.T)
            dh_prev = dh_prev + numpy.dot(slopes[gate], by_h.T)
        return [dx, dh_prev]


class ResetAfterGRUCell:
    def __init__(self, input_dim, hidden_dim, rng):
        H = self.H = hidden_dim
        scale = 1 / H**0.5
        shapes = {
            "W_x": (input_dim, 3 * H),
            "W_h": (H, 3 * H),
            "b_x": (3 * H,),
            "b_h": (3 * H,),
        }
        self.params = {name: rng.uniform(-scale, scale, shape) for name, shape in shapes.items()}
        self.grads = {}
        self.zero_grad()

    def zero_grad(self):
        for name, param in self.params.items():
            self.grads[name] = 0 * param

    def forward(self, x, h_prev):
        H, found = self.H, {}
        for k, name in enumerate("rzn"):
            columns = slice(k * H, (k + 1) * H)
            from_x = x @ self.params["W_x"][:, columns] + self.params["b_x"][columns]
            from_h = h_prev @ self.params["W_h"][:, columns] + self.params["b_h"][columns]
            if name == "n":
                found["inner"] = from_h
                found[name] = numpy.tanh(from_x + found["r"] * from_h)
            else:
                found[name] = squash(from_x + from_h)
        found.update(x=x, h_prev=h_prev)
        return found["n"] + found["z"] * (h_prev - found["n"]), found

    def backward(self, dh, cache):
        H, x, h_prev = self.H, cache["x"], cache["h_prev"]
        r, z, n = cache["r"], cache["z"], cache["n"]
        at_n = (dh - dh * z) * (1 - n * n)
        at_z = (dh * h_prev - dh * n) * z * (1 - z)
        at_r = at_n * cache["inner"] * r * (1 - r)
        dx, dh_prev = numpy.zeros_like(x), dh * z
        for k, (for_x, for_h) in enumerate([(at_r, at_r), (at_z, at_z), (at_n, at_n * r)]):
            columns = slice(k * H, (k + 1) * H)
            self.grads["W_x"][:, columns] += x.T @ for_x
            self.grads["b_x"][columns] += for_x.sum(0)
            self.grads["W_h"][:, columns] += h_prev.T @ for_h
            self.grads["b_h"][columns] += for_h.sum(0)
            dx = dx + for_x @ self.params["W_x"][:, columns].T
            dh_prev = dh_prev + for_h @ self.params["W_h"][:, columns].T
        return dx, dh_prev


def gru_forward(cell, x, h0, mask=None):
    N, T, _ = x.shape
    print("forward over", T, "steps")
    h = numpy.array(h0)
    out = numpy.zeros((N, T, h0.shape[1]), dtype=h.dtype)
    steps = {}
    for t in range(T):
        new_h, steps[t] = cell.forward(x[:, t, :], h)
        if mask is None:
            h = new_h
        else:
            h = h.copy()
            h[mask[:, t]] = new_h[mask[:, t]]
        out[:, t, :] = h
    return out, {"steps": steps, "mask": mask, "shape": x.shape}


def gru_backward(cell, dh, cache):
    N, T, D = cache["shape"]
    print("backward over", T, "steps")
    dx = numpy.zeros((N, T, D), dtype=dh.dtype)
    later = numpy.zeros_like(dh[:, 0])
    for t in range(T - 1, -1, -1):
        arriving = dh[:, t, :] + later
        if cache["mask"] is None:
            dx[:, t, :], later = cell.backward(arriving, cache["steps"][t])
        else:
            real = cache["mask"][:, t].reshape(N, 1)
            dx[:, t, :], before = cell.backward(arriving * real, cache["steps"][t])
            later = numpy.where(real, before, arriving)
    return dx, later


def count_parameters(kind, input_dim, hidden_dim):
    square, tall = hidden_dim * hidden_dim, input_dim * hidden_dim
    one = square + tall + hidden_dim
    if kind == "rnn":
        return one
    if kind == "lstm":
        return one + one + one + one
    if kind == "gru":
        return 3 * one
    if kind == "gru_reset_after":
        return numpy.int64(3 * (one + hidden_dim))
    print("what is that?")
    raise ValueError(f"no such kind: {kind}")
