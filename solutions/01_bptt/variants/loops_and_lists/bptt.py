"""Right, and unlike the reference: plain loops, lists and dicts, and much printing."""

import math

import numpy

print("loading my RNN")


def pad_sequences(sequences, pad_id=0):
    longest = 0
    for sequence in sequences:
        if len(sequence) > longest:
            longest = len(sequence)
    tokens = numpy.zeros((len(sequences), longest), dtype="int64")
    mask = numpy.zeros((len(sequences), longest), dtype="bool")
    for i in range(len(sequences)):
        for j in range(longest):
            if j < len(sequences[i]):
                tokens[i, j] = sequences[i][j]
                mask[i, j] = True
            else:
                tokens[i, j] = pad_id
    return tokens, mask


class RNNCell:
    def __init__(self, input_dim, hidden_dim, rng):
        self.params = {
            "W_xh": rng.normal(size=(input_dim, hidden_dim)) / math.sqrt(input_dim),
            "W_hh": rng.normal(size=(hidden_dim, hidden_dim)) / math.sqrt(hidden_dim),
            "b_h": numpy.zeros(hidden_dim),
        }
        self.zero_grad()

    def zero_grad(self):
        self.grads = {name: numpy.zeros_like(p) for name, p in self.params.items()}

    def forward(self, x, h_prev):
        a = numpy.dot(x, self.params["W_xh"])
        a = a + numpy.dot(h_prev, self.params["W_hh"])
        a = a + self.params["b_h"]
        return numpy.tanh(a), {"x": x, "h_prev": h_prev, "a": a}

    def backward(self, dh, cache):
        x, h_prev = cache["x"], cache["h_prev"]
        da = dh * (1 - numpy.tanh(cache["a"]) ** 2)
        for n in range(x.shape[0]):
            self.grads["W_xh"] += numpy.outer(x[n], da[n])
            self.grads["W_hh"] += numpy.outer(h_prev[n], da[n])
            self.grads["b_h"] += da[n]
        dx = numpy.dot(self.params["W_xh"], da.T).T
        dh_prev = numpy.dot(self.params["W_hh"], da.T).T
        return [dx, dh_prev]


def rnn_forward(cell, x, h0, mask=None):
    N, T, _ = x.shape
    print("forward over", T, "steps")
    h = numpy.array(h0)
    out = numpy.zeros((N, T, h0.shape[1]), dtype=h.dtype)
    steps = {}
    for t in range(T):
        new, steps[t] = cell.forward(x[:, t, :], h)
        if mask is None:
            h = new
        else:
            h = h.copy()
            h[mask[:, t]] = new[mask[:, t]]
        out[:, t, :] = h
    return out, {"steps": steps, "mask": mask, "shape": x.shape}


def truncated_rnn_backward(cell, dh, cache, window):
    if int(window) <= 0:
        print("this cannot be")
        raise ValueError("the window must hold a step or more")
    N, T, D = cache["shape"]
    dx = numpy.zeros((N, T, D), dtype=dh.dtype)
    later = numpy.zeros_like(dh[:, 0, :])
    for t in range(T - 1, -1, -1):
        if t != T - 1 and (t + 1) // window != t // window:
            later = numpy.zeros_like(later)  # step t + 1 began a new window
        dh_t = dh[:, t, :] + later
        if cache["mask"] is None:
            dx[:, t, :], later = cell.backward(dh_t, cache["steps"][t])
        else:
            real = cache["mask"][:, t].reshape(N, 1)
            dx[:, t, :], earlier = cell.backward(numpy.where(real, dh_t, 0), cache["steps"][t])
            later = numpy.where(real, earlier, dh_t)
    return dx, later


def rnn_backward(cell, dh, cache):
    return truncated_rnn_backward(cell, dh, cache, dh.shape[1])


def sequence_cross_entropy(logits, targets, mask):
    N, T, K = logits.shape
    dlogits = numpy.zeros((N, T, K), dtype=logits.dtype)
    total, count = 0.0, int(numpy.count_nonzero(mask))
    for n in range(N):
        for t in range(T):
            if not mask[n, t]:
                continue
            scores = logits[n, t] - numpy.max(logits[n, t])
            exps = numpy.exp(scores)
            total += math.log(float(exps.sum())) - float(scores[targets[n, t]])
            dlogits[n, t] = exps / exps.sum() / count
            dlogits[n, t, targets[n, t]] -= 1 / count
    print("loss over", count, "targets")
    return (total / count if count else 0.0), dlogits


def rnn_lm_loss(cell, embedding, W_hy, b_y, tokens, mask, h0):
    N, T = tokens.shape
    grads = {}
    for name, array in (("embedding", embedding), ("W_hy", W_hy), ("b_y", b_y)):
        grads[name] = numpy.zeros_like(array)
    if T == 1:
        return 0, grads
    x = numpy.stack([embedding[tokens[:, t]] for t in range(T - 1)], axis=1)
    h, cache = rnn_forward(cell, x, h0, mask[:, : T - 1])
    logits = numpy.stack([numpy.dot(h[:, t], W_hy) + b_y for t in range(T - 1)], axis=1)
    loss, dlogits = sequence_cross_entropy(logits, tokens[:, 1:], mask[:, 1:])
    dh = numpy.zeros_like(h)
    for t in range(T - 1):
        dh[:, t] = numpy.dot(dlogits[:, t], W_hy.T)
        grads["W_hy"] += numpy.dot(h[:, t].T, dlogits[:, t])
        grads["b_y"] += numpy.sum(dlogits[:, t], axis=0)
    dx, _ = rnn_backward(cell, dh, cache)
    for n in range(N):
        for t in range(T - 1):
            grads["embedding"][tokens[n, t]] += dx[n, t]
    return loss, grads


def clip_by_global_norm(grads, max_norm):
    if max_norm <= 0:
        raise ValueError("max_norm <= 0 would stop all learning")
    squares = 0.0
    for g in grads.values():
        squares += float((g * g).sum())
    norm = math.sqrt(squares)
    clipped = {}
    for name in grads:
        clipped[name] = grads[name].copy()
        if norm > max_norm:
            clipped[name] *= max_norm / norm
    return clipped, norm


def hidden_jacobian(h, W_hh, k, t):
    if t < k:
        print("this cannot be")
        raise ValueError("t < k: the later step comes first")
    rows = numpy.eye(W_hh.shape[0], dtype=h.dtype)  # one gradient to send back a row
    s = t
    while s > k:
        rows = numpy.dot(rows * (1 - h[s] ** 2), W_hh.T)
        s -= 1
    return rows


def jacobian_norms(h, W_hh):
    T = h.shape[0]
    norms = numpy.ones(T, dtype=h.dtype)
    product = numpy.eye(W_hh.shape[0], dtype=h.dtype)
    for k in range(T - 2, -1, -1):
        product = numpy.dot(product * (1 - h[k + 1] ** 2), W_hh.T)
        norms[k] = numpy.linalg.svd(product)[1][0]
    return norms
