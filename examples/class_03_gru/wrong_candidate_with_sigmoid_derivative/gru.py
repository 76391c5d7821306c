"""A GRU in NumPy: one step, a sequence of steps, and every gradient by hand.

Letters: N batch, T time, D input size, H hidden size. Batch comes first, rows are samples, affine
maps are ``y = x @ W + b``. Everything keeps the floating dtype of its inputs and changes none of
them in place. Equation numbers are the handout's.
"""

import numpy as np


def sigmoid(a):
    """The logistic function, by way of tanh: it overflows nowhere."""
    return 0.5 * (1 + np.tanh(0.5 * a))


class GRUCell:
    """One step of a GRU whose reset gate acts before the product, forward and backward.

    Attributes
    ----------
    params : dict
        ``"W"``: (D + H, 2 H), ``"b"``: (2 H,), of the gates; ``"W_h"``: (D + H, H), ``"b_h"``: (H,),
        of the candidate. Rows of both matrices: those of x first, then those of h. The column blocks
        of W and b, each H wide, are [r, z]: reset gate, update gate. A caller may put new arrays in or
        write into them between steps, so read them anew in every call.
    grads : dict
        The gradients, same keys and shapes as ``params``.
    """

    def __init__(self, input_dim, hidden_dim, rng):
        """Make ``self.params``, and ``self.grads`` as zeros. Given.

        Parameters
        ----------
        input_dim, hidden_dim : int
            D and H.
        rng : numpy.random.Generator
            Where every random number comes from.

        Matrices are normal with mean 0 and variance 1 / (D + H), biases 0.
        """
        rows, H = input_dim + hidden_dim, hidden_dim
        self.params = {
            "W": rng.normal(0.0, rows**-0.5, size=(rows, 2 * H)),
            "b": np.zeros(2 * H),
            "W_h": rng.normal(0.0, rows**-0.5, size=(rows, H)),
            "b_h": np.zeros(H),
        }
        self.grads = {name: np.zeros_like(p) for name, p in self.params.items()}

    def zero_grad(self):
        """Set every gradient to zeros of its parameter's shape. Given."""
        self.grads = {name: np.zeros_like(p) for name, p in self.params.items()}

    def forward(self, x, h_prev):
        """One step, equations (1) to (4).

        Parameters
        ----------
        x : (N, D) float array
        h_prev : (N, H) float array
            The state after the step before.

        Returns
        -------
        h : (N, H),  cache
            The new state, and whatever ``backward`` will need of this step. No RuntimeWarning for
            pre-activations up to ±1e4.

        Cho et al. (2014) for the gates, with z in the sense of Chung et al. (2014): z = 1 replaces the
        old state.
        """
        xh = np.concatenate([x, h_prev], axis=1)  # (N, D + H)
        gates = sigmoid(xh @ self.params["W"] + self.params["b"])  # (N, 2 H)
        r, z = np.split(gates, 2, axis=1)  # twice (N, H)
        xrh = np.concatenate([x, r * h_prev], axis=1)  # (N, D + H)
        h_new = np.tanh(xrh @ self.params["W_h"] + self.params["b_h"])  # (N, H)
        h = (1 - z) * h_prev + z * h_new
        return h, (xh, xrh, r, z, h_new)

    def backward(self, dh, cache):
        """Backpropagate one step, equations (5) to (7).

        Parameters
        ----------
        dh : (N, H) float array
            Gradient of the loss with respect to ``h``, from above and from step t + 1.
        cache
            What ``forward`` returned for this step.

        Returns
        -------
        dx : (N, D),  dh_prev : (N, H)

        Adds the parameter gradients, summed over the batch, to ``self.grads``.
        """
        xh, xrh, r, z, h_new = cache
        D = xh.shape[1] - r.shape[1]
        h_prev = xh[:, D:]
        da_h = dh * z * h_new * (1 - h_new)
        dxrh = da_h @ self.params["W_h"].T  # (N, D + H)
        drh = dxrh[:, D:]  # (N, H): gradient of r ⊙ h_prev
        da_r = drh * h_prev * r * (1 - r)
        da_z = dh * (h_new - h_prev) * z * (1 - z)
        da = np.concatenate([da_r, da_z], axis=1)  # (N, 2 H)
        self.grads["W"] += xh.T @ da  # (D + H, 2 H)
        self.grads["b"] += da.sum(axis=0)  # (2 H,)
        self.grads["W_h"] += xrh.T @ da_h  # (D + H, H)
        self.grads["b_h"] += da_h.sum(axis=0)  # (H,)
        dxh = da @ self.params["W"].T  # (N, D + H)
        dx = dxh[:, :D] + dxrh[:, :D]
        dh_prev = dh * (1 - z) + drh * r + dxh[:, D:]  # dxh holds two ways, through r and through z
        return dx, dh_prev


class ResetAfterGRUCell:
    """One step of a GRU whose reset gate acts after the product, as in cuDNN and PyTorch. Extension.

    Attributes
    ----------
    params : dict
        ``"W_x"``: (D, 3 H), ``"W_h"``: (H, 3 H), ``"b_x"``: (3 H,), ``"b_h"``: (3 H,). The column blocks
        of all four, each H wide, are [r, z, n]: reset gate, update gate, candidate.
    grads : dict
        The gradients, same keys and shapes as ``params``.
    """

    def __init__(self, input_dim, hidden_dim, rng):
        """Make ``self.params``, and ``self.grads`` as zeros. Given.

        Parameters
        ----------
        input_dim, hidden_dim : int
            D and H.
        rng : numpy.random.Generator
            Where every random number comes from.

        All four are uniform between -1/√H and 1/√H, as in PyTorch.
        """
        H, bound = hidden_dim, hidden_dim**-0.5
        self.params = {
            "W_x": rng.uniform(-bound, bound, size=(input_dim, 3 * H)),
            "W_h": rng.uniform(-bound, bound, size=(H, 3 * H)),
            "b_x": rng.uniform(-bound, bound, size=3 * H),
            "b_h": rng.uniform(-bound, bound, size=3 * H),
        }
        self.grads = {name: np.zeros_like(p) for name, p in self.params.items()}

    def zero_grad(self):
        """Set every gradient to zeros of its parameter's shape. Given."""
        self.grads = {name: np.zeros_like(p) for name, p in self.params.items()}

    def forward(self, x, h_prev):
        """One step, equations (10) to (12).

        Parameters
        ----------
        x : (N, D) float array
        h_prev : (N, H) float array
            The state after the step before.

        Returns
        -------
        h : (N, H),  cache
            The new state, and whatever ``backward`` will need of this step.

        The equations of torch.nn.GRU: here z = 1 keeps the old state.
        """
        H = h_prev.shape[1]
        a_x = x @ self.params["W_x"] + self.params["b_x"]  # (N, 3 H)
        a_h = h_prev @ self.params["W_h"] + self.params["b_h"]  # (N, 3 H)
        gates = sigmoid(a_x[:, : 2 * H] + a_h[:, : 2 * H])  # (N, 2 H)
        r, z = np.split(gates, 2, axis=1)  # twice (N, H)
        a_hn = a_h[:, 2 * H :]  # (N, H)
        n = np.tanh(a_x[:, 2 * H :] + r * a_hn)
        h = (1 - z) * n + z * h_prev
        return h, (x, h_prev, r, z, n, a_hn)

    def backward(self, dh, cache):
        """Backpropagate one step of equations (10) to (12).

        Parameters
        ----------
        dh : (N, H) float array
            Gradient of the loss with respect to ``h``, from above and from step t + 1.
        cache
            What ``forward`` returned for this step.

        Returns
        -------
        dx : (N, D),  dh_prev : (N, H)

        Adds the parameter gradients, summed over the batch, to ``self.grads``.
        """
        x, h_prev, r, z, n, a_hn = cache
        da_n = dh * (1 - z) * (1 - n**2)
        da_r = da_n * a_hn * r * (1 - r)
        da_z = dh * (h_prev - n) * z * (1 - z)
        da_x = np.concatenate([da_r, da_z, da_n], axis=1)  # (N, 3 H)
        da_h = np.concatenate([da_r, da_z, da_n * r], axis=1)  # (N, 3 H)
        self.grads["W_x"] += x.T @ da_x  # (D, 3 H)
        self.grads["W_h"] += h_prev.T @ da_h  # (H, 3 H)
        self.grads["b_x"] += da_x.sum(axis=0)  # (3 H,)
        self.grads["b_h"] += da_h.sum(axis=0)  # (3 H,)
        dx = da_x @ self.params["W_x"].T  # (N, D)
        dh_prev = da_h @ self.params["W_h"].T + dh * z  # (N, H)
        return dx, dh_prev


def gru_forward(cell, x, h0, mask=None):
    """Run the cell over a batch of sequences.

    Parameters
    ----------
    cell : GRUCell or ResetAfterGRUCell
    x : (N, T, D) float array
    h0 : (N, H) float array
        The state before the first step.
    mask : (N, T) bool array or None
        True = real token, False = padding (the opposite of torch's key_padding_mask). Where it is
        False the state is carried over unchanged. None means True everywhere. Extension.

    Returns
    -------
    h : (N, T, H),  cache
        h after every step, and whatever ``gru_backward`` will need.
    """
    if mask is None:
        mask = np.ones(x.shape[:2], dtype=bool)  # (N, T)
    h = h0
    hs, caches = [], []
    for t in range(x.shape[1]):
        h_t, cache = cell.forward(x[:, t], h)
        h = np.where(mask[:, t, None], h_t, h)
        hs.append(h)
        caches.append(cache)
    return np.stack(hs, axis=1), (caches, mask)  # (N, T, H)


def gru_backward(cell, dh, cache):
    """Backpropagate through time, equation (8).

    Parameters
    ----------
    cell : GRUCell or ResetAfterGRUCell
    dh : (N, T, H) float array
        Gradient of the loss with respect to every ``h`` that ``gru_forward`` returned.
    cache
        What ``gru_forward`` returned.

    Returns
    -------
    dx : (N, T, D),  dh0 : (N, H)

    Adds the parameter gradients of all steps to ``cell.grads``. Where the mask was False no
    gradient reaches x or the parameters; what arrives at such a step goes on to the state that
    was carried over.
    """
    caches, mask = cache
    dh_next = np.zeros_like(dh[:, 0])  # (N, H)
    dxs = []
    for t in reversed(range(dh.shape[1])):
        dh_t = dh[:, t] + dh_next  # (N, H): from above, and from step t + 1
        real = mask[:, t, None]  # (N, 1)
        dx, dh_prev = cell.backward(dh_t * real, caches[t])
        dh_next = dh_prev + dh_t * ~real
        dxs.append(dx)
    return np.stack(dxs[::-1], axis=1), dh_next  # (N, T, D), (N, H)


def count_parameters(kind, input_dim, hidden_dim):
    """How many numbers the parameters of one recurrent cell hold.

    Parameters
    ----------
    kind : str
        ``"rnn"``, one affine map of [x, h]; ``"lstm"``, four of them; ``"gru"``, ``GRUCell``;
        ``"gru_reset_after"``, ``ResetAfterGRUCell``. The first three have one bias to each map.
    input_dim, hidden_dim : int
        D and H.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        Naming ``kind``, if it is none of the four.
    """
    maps_and_biases = {"rnn": (1, 1), "lstm": (4, 1), "gru": (3, 1), "gru_reset_after": (3, 2)}
    if kind not in maps_and_biases:
        raise ValueError(f"kind must be one of {', '.join(maps_and_biases)}, not {kind!r}")
    maps, biases = maps_and_biases[kind]
    return maps * hidden_dim * (input_dim + hidden_dim + biases)
