"""An LSTM in NumPy: one step, a sequence of steps, and every gradient by hand.

Letters: N batch, T time, D input size, H hidden size. Batch comes first, rows are samples, affine
maps are ``y = x @ W + b``. Everything keeps the floating dtype of its inputs and changes none of
them in place. Equation numbers are the handout's.
"""

import numpy as np


def sigmoid(z):
    """The logistic function, equation (1).

    Parameters
    ----------
    z : float array of any shape, () included

    Returns
    -------
    Like ``z``: same shape, same floating dtype. In float64 within 1e-12 of the exact value, exactly
    0 and 1 at ``z = -1e4`` and ``z = 1e4``, and without a RuntimeWarning for any finite ``z``.
    """
    e = np.exp(-np.abs(z))  # in (0, 1]: never overflows
    return np.where(z >= 0, 1, e) / (1 + e)


class LSTMCell:
    """One step of an LSTM, forward and backward.

    Attributes
    ----------
    params : dict
        ``"W"``: (D + H, 4 H), ``"b"``: (4 H,). The rows of W are those of x first, then those of
        h_prev. The column blocks of W and b, each H wide, are [f, i, c, o]: forget gate, input
        gate, candidate, output gate. A caller may put new arrays in or write into them between
        steps, so read them anew in every call.
    grads : dict
        The gradients, same keys and shapes as ``params``.
    """

    def __init__(self, input_dim, hidden_dim, rng, forget_bias=1.0):
        """Make ``self.params``, and ``self.grads`` as zeros.

        Parameters
        ----------
        input_dim, hidden_dim : int
            D and H.
        rng : numpy.random.Generator
            Where every random number comes from.
        forget_bias : float
            What the forget block of b starts at.

        W is normal with mean 0 and variance 2 / (D + H); b is 0 but for the forget block.
        He et al. (2015) for the variance, Jozefowicz et al. (2015) for the forget bias.
        """
        D, H = input_dim, hidden_dim
        W = rng.normal(0.0, np.sqrt(2 / (D + H)), size=(D + H, 4 * H))
        b = np.zeros(4 * H)
        b[:H] = forget_bias
        self.params = {"W": W, "b": b}
        self.grads = {}
        self.zero_grad()

    def zero_grad(self):
        """Set every gradient to zeros of its parameter's shape. Given."""
        self.grads = {name: np.zeros_like(p) for name, p in self.params.items()}

    def forward(self, x, h_prev, c_prev):
        """One step, equations (2) to (5).

        Parameters
        ----------
        x : (N, D) float array
        h_prev, c_prev : (N, H) float arrays
            The state after the step before.

        Returns
        -------
        h : (N, H),  c : (N, H),  cache
            The new state, and whatever ``backward`` will need of this step.

        Hochreiter & Schmidhuber (1997), with the forget gate of Gers et al. (2000).
        """
        W, b = self.params["W"], self.params["b"]
        xh = np.concatenate([x, h_prev], axis=1)  # (N, D + H)
        a = xh @ W + b  # (N, 4 H)
        a_f, a_i, a_c, a_o = np.split(a, 4, axis=1)  # four times (N, H)
        f, i, o = sigmoid(a_f), sigmoid(a_i), sigmoid(a_o)
        c_new = np.tanh(a_c)
        c = f * c_prev + i * c_new
        h = o * np.tanh(c)
        return h, c, (xh, c_prev, f, i, c_new, o, c)

    def backward(self, dh, dc, cache):
        """Backpropagate one step, equations (6) to (8).

        Parameters
        ----------
        dh : (N, H) float array
            Gradient of the loss with respect to ``h``, from above and from step t + 1.
        dc : (N, H) float array
            Gradient reaching ``c`` from step t + 1 along the cell state.
        cache
            What ``forward`` returned for this step.

        Returns
        -------
        dx : (N, D),  dh_prev : (N, H),  dc_prev : (N, H)

        Adds the parameter gradients, summed over the batch, to ``self.grads``.
        """
        xh, c_prev, f, i, c_new, o, c = cache
        D = xh.shape[1] - c.shape[1]
        tanh_c = np.tanh(c)
        dc = dc + dh * o * (1 - tanh_c**2)  # c reaches the loss through step t + 1 and through h
        da_f = dc * c_prev * f * (1 - f)
        da_i = dc * c_new * i * (1 - i)
        da_c = dc * i * (1 - c_new**2)
        da_o = dh * tanh_c * o * (1 - o)
        da = np.concatenate([da_f, da_i, da_c, da_o], axis=1)  # (N, 4 H)
        self.grads["W"] += xh.T @ da  # (D + H, 4 H)
        self.grads["b"] += da.sum(axis=0)  # (4 H,)
        dxh = da @ self.params["W"].T  # (N, D + H)
        return dxh[:, :D], dxh[:, D:], dc * f


def lstm_forward(cell, x, h0, c0, mask=None):
    """Run the cell over a batch of sequences.

    Parameters
    ----------
    cell : LSTMCell
    x : (N, T, D) float array
    h0, c0 : (N, H) float arrays
        The state before the first step.
    mask : (N, T) bool array or None
        True = real token, False = padding (the opposite of torch's key_padding_mask). Where it is
        False the state is carried over unchanged. None means True everywhere.

    Returns
    -------
    h : (N, T, H),  c_last : (N, H),  cache
        h after every step, c after the last one, and whatever ``lstm_backward`` will need.
    """
    if mask is None:
        mask = np.ones(x.shape[:2], dtype=bool)  # (N, T)
    h, c = h0, c0
    hs, caches = [], []
    for t in range(x.shape[1]):
        h_new, c_new, cache = cell.forward(x[:, t], h, c)
        real = mask[:, t, None]  # (N, 1)
        h, c = np.where(real, h_new, h), np.where(real, c_new, c)
        hs.append(h)
        caches.append(cache)
    return np.stack(hs, axis=1), c, (caches, mask)  # (N, T, H), (N, H)


def lstm_backward(cell, dh, dc_last, cache):
    """Backpropagate through time, equation (9).

    Parameters
    ----------
    cell : LSTMCell
    dh : (N, T, H) float array
        Gradient of the loss with respect to every ``h`` that ``lstm_forward`` returned.
    dc_last : (N, H) float array
        Gradient of the loss with respect to ``c_last``.
    cache
        What ``lstm_forward`` returned.

    Returns
    -------
    dx : (N, T, D),  dh0 : (N, H),  dc0 : (N, H)

    Adds the parameter gradients of all steps to ``cell.grads``. Where the mask was False no
    gradient reaches x or the parameters; what arrives at such a step goes on to the state that
    was carried over.
    """
    caches, mask = cache
    dh_next, dc = np.zeros_like(dc_last), np.zeros_like(dc_last)
    dxs = []
    for t in reversed(range(dh.shape[1])):
        dh_t = dh[:, t] + dh_next  # (N, H): from above, and from step t + 1
        real = mask[:, t, None]  # (N, 1)
        dx, dh_prev, dc_prev = cell.backward(dh_t * real, dc * real, caches[t])
        dh_next, dc = dh_prev + dh_t * ~real, dc_prev + dc * ~real
        dxs.append(dx)
    return np.stack(dxs[::-1], axis=1), dh_next, dc  # (N, T, D), (N, H), (N, H)


def carousel_gradient(forget_gates, k, t):
    """The direct path from c_k to c_t, equation (10): along the cell state and nothing else.

    The gates of later steps depend on c_k too, through h. That dependence is left out here; it is in
    the dc0 of ``lstm_backward``, which is the whole derivative.

    Parameters
    ----------
    forget_gates : (T, H) float array
        f of every step of one sequence, steps counted from 0.
    k, t : int
        0 <= k <= t < T.

    Returns
    -------
    (H,) float array
        ∂c_t[i] / ∂c_k[i] for every unit i; ones where k == t.

    Raises
    ------
    ValueError
        Naming ``k``, if k > t: a later state does not act on an earlier one.

    Hochreiter & Schmidhuber (1997), who call it the constant error carousel.
    """
    if k > t:
        raise ValueError(f"k must not be after t, and k = {k} is after t = {t}")
    return np.prod(forget_gates[k + 1 : t + 1], axis=0)  # (H,)
