"""Right, and unlike the reference: einsum, closures for caches, all projections of a sequence at once.

Results are read-only, in Fortran order or transposed views; gradients replace the arrays of grads.
"""

import itertools

import numpy as np


def _frozen(array):
    array = np.asfortranarray(array)
    array.flags.writeable = False
    return array


def pad_sequences(sequences, pad_id=0):
    columns = list(itertools.zip_longest(*(list(map(int, s)) for s in sequences)))
    shape = (len(columns), len(sequences))
    grid = np.array(columns, dtype=object).reshape(shape).T
    mask = np.array([[entry is not None for entry in row] for row in grid], dtype=bool)
    mask = mask.reshape(grid.shape)
    return _frozen(np.where(mask, grid, pad_id).astype(np.int64)), _frozen(mask)


class RNNCell:
    def __init__(self, input_dim, hidden_dim, rng):
        D, H = input_dim, hidden_dim
        self.params = {
            "b_h": np.zeros(H),
            "W_hh": rng.normal(size=(H, H)) / np.sqrt(H),
            "W_xh": rng.normal(size=(D, H)) / np.sqrt(D),
        }
        self.zero_grad()

    def zero_grad(self):
        self.grads = {name: np.zeros_like(p) for name, p in self.params.items()}

    def _add(self, **gradients):
        self.grads = {name: grad + gradients[name] for name, grad in self.grads.items()}

    def forward(self, x, h_prev):
        W_xh, W_hh = self.params["W_xh"], self.params["W_hh"]
        both = np.hstack([x, h_prev])
        h = np.tanh(np.einsum("nd,dh->nh", both, np.vstack([W_xh, W_hh])) + self.params["b_h"])
        D = x.shape[1]

        def cache(dh):
            da = dh - dh * np.square(h)
            dW = np.einsum("nd,nh->dh", both, da)
            self._add(W_xh=dW[:D], W_hh=dW[D:], b_h=np.einsum("nh->h", da))
            return np.inner(da, W_xh), np.inner(da, W_hh)

        return _frozen(h), cache

    def backward(self, dh, cache):
        return tuple(_frozen(grad) for grad in cache(dh))


def rnn_forward(cell, x, h0, mask=None):
    W_hh = cell.params["W_hh"]
    keep = np.ones((*x.shape[:2], 1), bool) if mask is None else np.array(mask)[..., None]
    projected = np.einsum("ntd,dh->tnh", x, cell.params["W_xh"]) + cell.params["b_h"]
    states, slopes = [h0], []
    for t, a in enumerate(projected):
        new = np.tanh(a + states[-1] @ W_hh)
        slopes.append(keep[:, t] * (1 - new) * (1 + new))  # 0 where nothing happened
        states.append(np.where(keep[:, t], new, states[-1]))
    h = np.stack(states[1:], axis=2).transpose(0, 2, 1)

    def cache(dh, window):
        das, carried, dh0 = [], np.zeros_like(h0), None
        for t in range(len(slopes) - 1, -1, -1):
            arriving = dh[:, t] + carried
            da = arriving * slopes[t]
            das.insert(0, da)
            carried = da @ W_hh.T + np.where(keep[:, t], 0, arriving)
            dh0 = carried
            carried = carried if t % window else 0 * carried
        da = np.stack(das, axis=1).astype(dh.dtype)
        before = np.stack(states[:-1], axis=1)
        cell._add(
            W_xh=np.einsum("ntd,nth->dh", x, da),
            W_hh=np.einsum("ntg,nth->gh", before, da),
            b_h=np.einsum("nth->h", da),
        )
        return np.einsum("nth,dh->ntd", da, cell.params["W_xh"]), dh0

    return _frozen(h), cache


def rnn_backward(cell, dh, cache):
    return cache(dh, dh.shape[1])


def truncated_rnn_backward(cell, dh, cache, window):
    if not window > 0:
        raise ValueError(f"truncated_rnn_backward: window={window} has no step")
    return cache(dh, window)


def sequence_cross_entropy(logits, targets, mask):
    real = np.nonzero(mask)
    dlogits = np.zeros_like(logits)
    if not len(real[0]):
        return 0, dlogits
    rows, right = logits[real], targets[real]
    top = rows.max(axis=-1)
    p = np.exp(rows - top[:, None])
    total = p.sum(axis=-1)
    each = np.arange(len(right))
    loss = np.mean(np.log(total) + top - rows[each, right])
    p /= total[:, None]
    p[each, right] -= 1
    dlogits[real] = p / len(right)
    return float(loss), _frozen(dlogits)


def rnn_lm_loss(cell, embedding, W_hy, b_y, tokens, mask, h0):
    V = len(embedding)
    if tokens.shape[1] < 2:
        arrays = {"b_y": b_y, "embedding": embedding, "W_hy": W_hy}
        return 0.0, {name: np.zeros_like(array) for name, array in arrays.items()}
    read = np.eye(V, dtype=embedding.dtype)[tokens[:, :-1]]  # one-hot (N, T - 1, V)
    h, cache = rnn_forward(cell, read @ embedding, h0, mask[:, :-1])
    logits = np.einsum("nth,hv->ntv", h, W_hy) + b_y
    loss, dlogits = sequence_cross_entropy(logits, tokens[:, 1:], mask[:, 1:])
    dx, _ = rnn_backward(cell, np.einsum("ntv,hv->nth", dlogits, W_hy), cache)
    return loss, {
        "b_y": np.einsum("ntv->v", dlogits),
        "W_hy": np.tensordot(h, dlogits, axes=([0, 1], [0, 1])),
        "embedding": np.einsum("ntv,nte->ve", read, dx),
    }


def clip_by_global_norm(grads, max_norm):
    if not max_norm > 0:
        raise ValueError("clip_by_global_norm: max_norm has to be positive")
    flat = [np.ravel(g) for g in grads.values()]
    norm = np.linalg.norm(np.concatenate(flat).astype(float))
    shrink = float(max_norm / max(norm, max_norm))
    return {name: g * shrink for name, g in reversed(list(grads.items()))}, norm


def _factor(h, W_hh):
    return np.diag(1 - h**2) @ W_hh.T


def hidden_jacobian(h, W_hh, k, t):
    if not k <= t:
        raise ValueError(f"hidden_jacobian: step k={k} lies behind step t={t}")
    factors = [_factor(h_s, W_hh) for h_s in h[k + 1 : t + 1][::-1]]
    eye = np.identity(h.shape[1], dtype=h.dtype)
    return _frozen(np.linalg.multi_dot([*factors, eye, eye]) if factors else eye)


def jacobian_norms(h, W_hh):
    steps = [np.identity(h.shape[1], dtype=h.dtype)]
    for h_k in h[:0:-1]:
        steps.append(steps[-1] @ _factor(h_k, W_hh))
    return np.linalg.svd(np.array(steps), compute_uv=False)[::-1, 0]
