"""Right, and unlike the reference: parameter gradients of a whole sequence at once, closures for caches.

Results are read-only views, in Fortran order or transposed; gradients replace the arrays of grads.
"""

import numpy as np


def _sigmoid(a):
    low = np.exp(np.minimum(a, 0))  # 1 where a is positive
    return low / (low + np.exp(-np.maximum(a, 0)))


def _frozen(array):
    array = np.asfortranarray(array)
    array.flags.writeable = False
    return array


class _Cell:
    """What both cells share. ``_step`` gives h and a closure from dh to ``(pieces, dx, dh_prev)``."""

    def zero_grad(self):
        self.grads = {name: np.zeros(p.shape, p.dtype) for name, p in self.params.items()}

    def _add(self, pieces):
        """Pieces are (weight's name, bias's name, what it met, its gradient)."""
        grads = dict(self.grads)
        for weight, bias, met, da in pieces:
            grads[weight] = grads[weight] + np.einsum("nd,nk->dk", met, da)
            grads[bias] = grads[bias] + np.einsum("nk->k", da)
        self.grads = grads

    def forward(self, x, h_prev):
        h, back = self._step(x, h_prev)
        return _frozen(h), back

    def backward(self, dh, cache):
        pieces, dx, dh_prev = cache(dh)
        self._add(pieces)
        return _frozen(dx), _frozen(dh_prev)


class GRUCell(_Cell):
    def __init__(self, input_dim, hidden_dim, rng):
        rows = input_dim + hidden_dim
        drawn = rng.standard_normal((3 * hidden_dim, rows)).T / np.sqrt(rows)
        self.params = {
            "W_h": drawn[:, :hidden_dim],
            "b_h": np.zeros(hidden_dim),
            "W": drawn[:, hidden_dim:],
            "b": np.zeros(2 * hidden_dim),
        }
        self.zero_grad()

    def _step(self, x, h_prev):
        W, V, H = self.params["W"], self.params["W_h"], h_prev.shape[1]
        both = np.hstack((x, h_prev))
        gates = _sigmoid(np.einsum("nd,dk->nk", both, W) + self.params["b"])
        r, z = gates[:, :H], gates[:, H:]
        seen = np.hstack((x, r * h_prev))
        new = np.tanh(np.einsum("nd,dk->nk", seen, V) + self.params["b_h"])

        def back(dh):
            at_new = z * dh - z * dh * new * new
            to_seen = np.einsum("nk,dk->nd", at_new, V)
            to_r = to_seen[:, -H:] * h_prev
            to_z = dh * new - dh * h_prev
            at_gates = np.hstack((to_r, to_z)) * (gates - gates * gates)
            to_both = np.einsum("nk,dk->nd", at_gates, W)
            dx = to_both[:, :-H] + to_seen[:, :-H]
            dh_prev = to_both[:, -H:] + to_seen[:, -H:] * r + dh - dh * z
            return [("W", "b", both, at_gates), ("W_h", "b_h", seen, at_new)], dx, dh_prev

        return z * new + h_prev - z * h_prev, back


class ResetAfterGRUCell(_Cell):
    def __init__(self, input_dim, hidden_dim, rng):
        H = hidden_dim
        sizes = {"b_h": (3 * H,), "W_h": (H, 3 * H), "b_x": (3 * H,), "W_x": (input_dim, 3 * H)}
        self.params = {name: rng.uniform(-1, 1, size) / np.sqrt(H) for name, size in sizes.items()}
        self.zero_grad()

    def _step(self, x, h_prev):
        N, H = h_prev.shape
        p = dict(self.params)
        u = (x @ p["W_x"] + p["b_x"]).reshape(N, 3, H)
        v = (h_prev @ p["W_h"] + p["b_h"]).reshape(N, 3, H)
        gates = _sigmoid(u[:, :2] + v[:, :2])
        r, z = gates.transpose(1, 0, 2)
        n = np.tanh(u[:, 2] + r * v[:, 2])

        def back(dh):
            at_n = (1 - z) * dh * (1 - n) * (1 + n)
            to_gates = np.stack([at_n * v[:, 2], (h_prev - n) * dh], axis=1)
            at_gates = to_gates * gates * (1 - gates)
            du = np.concatenate([at_gates, at_n[:, None]], axis=1).reshape(N, 3 * H)
            dv = np.concatenate([at_gates, (r * at_n)[:, None]], axis=1).reshape(N, 3 * H)
            pieces = [("W_x", "b_x", x, du), ("W_h", "b_h", h_prev, dv)]
            return pieces, du @ p["W_x"].T, dv @ p["W_h"].T + z * dh

        return n + z * (h_prev - n), back


def gru_forward(cell, x, h0, mask=None):
    real = np.ones(x.shape[:2], bool) if mask is None else np.array(mask)
    states, backs = [h0], []
    for t in range(x.shape[1]):
        h_new, back = cell._step(x[:, t], states[-1])
        states.append(np.where(real[:, t : t + 1], h_new, states[-1]))
        backs.append(back)

    def cache(dh):
        carried, dxs, gathered = np.zeros(h0.shape, dh.dtype), [], []
        for t in range(len(backs) - 1, -1, -1):
            keep = real[:, t : t + 1]
            arriving = carried + dh[:, t]
            pieces, dx, dh_prev = backs[t](np.where(keep, arriving, 0))
            carried = np.where(keep, dh_prev, arriving)
            gathered.append(pieces)
            dxs.insert(0, dx)
        for of_one in zip(*gathered, strict=True):  # one product over all steps
            met, da = (np.concatenate([piece[k] for piece in of_one]) for k in (2, 3))
            cell._add([(*of_one[0][:2], met, da)])
        return np.swapaxes(np.stack(dxs), 0, 1), carried

    return _frozen(np.stack(states[1:], axis=2).transpose(0, 2, 1)), cache


def gru_backward(cell, dh, cache):
    return cache(dh)


def count_parameters(kind, input_dim, hidden_dim):
    try:
        blocks = {"rnn": 1, "gru": 3, "gru_reset_after": 3, "lstm": 4}[kind]
    except KeyError:
        raise ValueError(f"kind {kind!r} is not known") from None
    rows = input_dim + hidden_dim + 1 + (kind == "gru_reset_after")
    return int(np.prod([rows, blocks * hidden_dim]))
