"""Right, and unlike the reference: one gate after the other, dicts for caches, and much printing."""

import numpy

print("loading my LSTM")


def sigmoid(z):
    z = numpy.asarray(z)
    s = numpy.empty(z.shape, dtype=z.dtype)
    s[z >= 0] = 1 / (1 + numpy.exp(-z[z >= 0]))
    s[z < 0] = numpy.exp(z[z < 0]) / (1 + numpy.exp(z[z < 0]))
    return s[()]  # of a single number, the number


class LSTMCell:
    def __init__(self, input_dim, hidden_dim, rng, forget_bias=1.0):
        D = self.D = input_dim
        H = self.H = hidden_dim
        std = (2 / (D + H)) ** 0.5
        Wf = std * rng.standard_normal((D + H, H))
        Wi = std * rng.standard_normal((D + H, H))
        Wc = std * rng.standard_normal((D + H, H))
        Wo = std * rng.standard_normal((D + H, H))
        bf = numpy.ones(H) * forget_bias
        rest = numpy.zeros(3 * H)
        self.params = {
            "W": numpy.concatenate((Wf, Wi, Wc, Wo), axis=1),
            "b": numpy.concatenate((bf, rest)),
        }
        self.grads = {"W": numpy.zeros((D + H, 4 * H)), "b": numpy.zeros(4 * H)}
        print(f"made a cell with D={D} and H={H}")

    def zero_grad(self):
        self.grads["W"][:] = 0
        self.grads["b"][:] = 0

    def forward(self, x, h_prev, c_prev):
        H = self.H
        W = self.params["W"]
        b = self.params["b"]
        both = numpy.concatenate((x, h_prev), axis=1)

        f = sigmoid(numpy.dot(both, W[:, 0:H]) + b[0:H])
        i = sigmoid(numpy.dot(both, W[:, H : 2 * H]) + b[H : 2 * H])
        candidate = numpy.tanh(numpy.dot(both, W[:, 2 * H : 3 * H]) + b[2 * H : 3 * H])
        o = sigmoid(numpy.dot(both, W[:, 3 * H : 4 * H]) + b[3 * H : 4 * H])

        c = f * c_prev + i * candidate
        tanh_c = numpy.tanh(c)
        h = o * tanh_c
        cache = {
            "x": x,
            "h_prev": h_prev,
            "c_prev": c_prev,
            "f": f,
            "i": i,
            "candidate": candidate,
            "o": o,
            "tanh_c": tanh_c,
        }
        return h, c, cache

    def backward(self, dh, dc, cache):
        H = self.H
        W = self.params["W"]
        x, h_prev, c_prev = cache["x"], cache["h_prev"], cache["c_prev"]
        f, i, candidate, o = cache["f"], cache["i"], cache["candidate"], cache["o"]
        tanh_c = cache["tanh_c"]

        do = dh * tanh_c
        dtanh_c = dh * o
        dc_here = dc + dtanh_c * (1 - tanh_c * tanh_c)
        df = dc_here * c_prev
        dc_prev = dc_here * f
        di = dc_here * candidate
        dcandidate = dc_here * i

        dzf = df * f * (1 - f)
        dzi = di * i * (1 - i)
        dzc = dcandidate * (1 - candidate * candidate)
        dzo = do * o * (1 - o)

        dx = numpy.zeros_like(x)
        dh_prev = numpy.zeros_like(h_prev)
        for k, dz in enumerate((dzf, dzi, dzc, dzo)):
            block = slice(k * H, (k + 1) * H)
            self.grads["W"][: self.D, block] += numpy.dot(x.T, dz)
            self.grads["W"][self.D :, block] += numpy.dot(h_prev.T, dz)
            self.grads["b"][block] += numpy.sum(dz, axis=0)
            dx = dx + numpy.dot(dz, W[: self.D, block].T)
            dh_prev = dh_prev + numpy.dot(dz, W[self.D :, block].T)
        return [dx, dh_prev, dc_prev]


def lstm_forward(cell, x, h0, c0, mask=None):
    N, T, _ = x.shape
    print("forward over", T, "steps")
    h = numpy.array(h0)
    c = numpy.array(c0)
    out = numpy.zeros((N, T, h0.shape[1]), dtype=h.dtype)
    steps = {}
    for t in range(T):
        new_h, new_c, steps[t] = cell.forward(x[:, t, :], h, c)
        if mask is None:
            h, c = new_h, new_c
        else:
            h, c = h.copy(), c.copy()
            h[mask[:, t]] = new_h[mask[:, t]]
            c[mask[:, t]] = new_c[mask[:, t]]
        out[:, t, :] = h
    return out, c, {"steps": steps, "mask": mask, "shape": x.shape}


def lstm_backward(cell, dh, dc_last, cache):
    N, T, D = cache["shape"]
    print("backward over", T, "steps")
    dx = numpy.zeros((N, T, D), dtype=dh.dtype)
    dh_later = numpy.zeros_like(dc_last)
    dc_later = numpy.array(dc_last)
    for t in range(T - 1, -1, -1):
        dh_t = dh[:, t, :] + dh_later
        dc_t = dc_later
        if cache["mask"] is None:
            dx[:, t, :], dh_later, dc_later = cell.backward(dh_t, dc_t, cache["steps"][t])
        else:
            real = cache["mask"][:, t].reshape(N, 1)
            back = cell.backward(dh_t * real, dc_t * real, cache["steps"][t])
            dx[:, t, :] = back[0]
            dh_later = numpy.where(real, back[1], dh_t)
            dc_later = numpy.where(real, back[2], dc_t)
    return dx, dh_later, dc_later


def carousel_gradient(forget_gates, k, t):
    if t < k:
        print("this cannot be")
        raise ValueError("t < k: the later step comes first")
    path = numpy.full(forget_gates.shape[1], 1, dtype=forget_gates.dtype)
    j = t
    while j > k:
        path = forget_gates[j] * path
        j -= 1
    return path
