"""Right, and unlike the reference: projections of a whole sequence at once, closures for caches.

Results are read-only views, in Fortran order or transposed; gradients replace the arrays of grads.
"""

import numpy as np


def sigmoid(z):
    return 0.5 + 0.5 * np.tanh(0.5 * z)


def _frozen(array):
    array = np.asfortranarray(array)
    array.flags.writeable = False
    return array


def _gates(a, H):
    """Pre-activations (..., 4 H) to f, i, c, o as one array (4, ..., H)."""
    a = np.moveaxis(a.reshape(*a.shape[:-1], 4, H), -2, 0)
    return np.where(np.array([1, 1, 0, 1]).reshape(4, *[1] * (a.ndim - 1)), sigmoid(a), np.tanh(a))


def _slopes(gates):
    """The derivative of each gate's own function, from its output: (4, ..., H)."""
    f, i, g, o = gates
    return np.array([f - f * f, i - i * i, 1 - g * g, o - o * o])


class LSTMCell:
    def __init__(self, input_dim, hidden_dim, rng, forget_bias=1.0):
        rows = input_dim + hidden_dim
        draws = [rng.standard_normal((hidden_dim, rows)).T for _ in range(4)]
        self.params = {
            "b": np.kron([1.0, 0.0, 0.0, 0.0], np.full(hidden_dim, float(forget_bias))),
            "W": np.sqrt(2 / rows) * np.hstack(draws),
        }
        self.zero_grad()

    def zero_grad(self):
        self.grads = {name: np.zeros(p.shape, p.dtype) for name, p in self.params.items()}

    def _add(self, dW, db):
        self.grads = {"W": self.grads["W"] + dW, "b": self.grads["b"] + db}

    def _step(self, a, c_prev):
        """From pre-activations to the new state, and a closure back to them."""
        gates = _gates(a, c_prev.shape[1])
        f, i, g, o = gates
        c = f * c_prev + i * g
        squashed = np.tanh(c)

        def back(dh, dc):
            total = dc + o * dh - o * dh * squashed * squashed
            reach = np.array([total * c_prev, total * g, total * i, dh * squashed])
            da = np.moveaxis(reach * _slopes(gates), 0, 1)  # (N, 4, H)
            return da.reshape(a.shape), total * f

        return o * squashed, c, back

    def forward(self, x, h_prev, c_prev):
        D = x.shape[1]
        W, b = self.params["W"], self.params["b"]
        a = np.einsum("nd,dk->nk", x, W[:D]) + np.einsum("nh,hk->nk", h_prev, W[D:]) + b
        h, c, back = self._step(a, c_prev)

        def cache(dh, dc):
            da, dc_prev = back(dh, dc)
            dW = np.concatenate([np.einsum("nd,nk->dk", x, da), np.einsum("nh,nk->hk", h_prev, da)])
            self._add(dW, np.einsum("nk->k", da))
            return da @ W[:D].T, da @ W[D:].T, dc_prev

        return _frozen(h), _frozen(c), cache

    def backward(self, dh, dc, cache):
        return tuple(_frozen(grad) for grad in cache(dh, dc))


def lstm_forward(cell, x, h0, c0, mask=None):
    D = x.shape[2]
    W, b = cell.params["W"], cell.params["b"]
    real = np.ones(x.shape[:2], bool) if mask is None else np.array(mask)
    projected = np.einsum("ntd,dk->tnk", x, W[:D]) + b  # every step at once
    states, backs, c = [h0], [], c0
    for t, a in enumerate(projected):
        h_new, c_new, back = cell._step(a + states[-1] @ W[D:], c)
        keep = real[:, t : t + 1]
        states.append(np.where(keep, h_new, states[-1]))
        c = np.where(keep, c_new, c)
        backs.append(back)
    h_prev = np.stack(states[:-1])  # (T, N, H)

    def cache(dh, dc):
        carried, das = np.zeros_like(dc), []
        for t in range(len(backs) - 1, -1, -1):
            keep = real[:, t : t + 1]
            arriving = carried + dh[:, t]
            da, dc_prev = backs[t](np.where(keep, arriving, 0), np.where(keep, dc, 0))
            carried = np.where(keep, da @ W[D:].T, arriving)
            dc = np.where(keep, dc_prev, dc)
            das.insert(0, da)
        da = np.stack(das)  # (T, N, 4 H)
        dW = np.vstack([np.einsum("ntd,tnk->dk", x, da), np.einsum("tnh,tnk->hk", h_prev, da)])
        cell._add(dW, da.sum(axis=(0, 1)))
        return np.einsum("tnk,dk->ntd", da, W[:D]), carried, dc

    return _frozen(np.stack(states[1:], axis=2).transpose(0, 2, 1)), c, cache


def lstm_backward(cell, dh, dc_last, cache):
    return cache(dh, dc_last)


def carousel_gradient(forget_gates, k, t):
    if not k <= t:
        raise ValueError(f"carousel_gradient: step k={k} lies behind step t={t}")
    factors = np.concatenate([np.ones_like(forget_gates[:1]), forget_gates[k + 1 : t + 1]])
    return _frozen(np.multiply.accumulate(factors)[-1])
