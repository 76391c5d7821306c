"""A vanilla RNN in NumPy: padding, one step, a sequence, a language model's loss, every gradient by hand.

Letters: N batch, T time, D input size, H hidden size, K classes, V vocabulary, E embedding size. Batch
comes first, rows are samples, affine maps are ``y = x @ W + b``. Everything keeps the floating dtype
of its inputs and changes none of them in place. Equation numbers are the handout's.
"""

import numpy as np


def pad_sequences(sequences, pad_id=0):
    """Put sequences of different lengths into one array.

    Parameters
    ----------
    sequences : list of N sequences of token ids, each a list of ints or an int array (length,)
        Any of them may be empty, and so may the list.
    pad_id : int
        What stands behind the end of a sequence.

    Returns
    -------
    tokens : (N, T) int64 array
        One sequence a row, each from the first column on. T is the length of the longest, 0 if there
        is none.
    mask : (N, T) bool array
        True = real token, False = padding (the opposite of torch's key_padding_mask).
    """
    lengths = np.array([len(sequence) for sequence in sequences])  # (N,)
    N, T = len(sequences), max(lengths, default=0)
    tokens = np.full((N, T), pad_id, dtype=np.int64)
    for n, sequence in enumerate(sequences):
        tokens[n, : len(sequence)] = sequence
    return tokens, np.arange(T) < lengths[:, None]


class RNNCell:
    """One step of a vanilla RNN, forward and backward.

    Attributes
    ----------
    params : dict
        ``"W_xh"``: (D, H), ``"W_hh"``: (H, H), ``"b_h"``: (H,). A caller may put new arrays in or write
        into them between steps, so read them anew in every call.
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

        Weights are normal with mean 0 and variance 1 / rows; b_h is 0.
        """
        D, H = (input_dim, hidden_dim)  # sizes
        self.params = {
            "W_xh": rng.normal(size=(D, H)) / np.sqrt(D),
            "W_hh": rng.normal(size=(H, H)) / np.sqrt(H),
            "b_h": np.zeros(H),
        }
        self.zero_grad()

    def zero_grad(self):
        """Set every gradient to zeros of its parameter's shape. Given."""
        self.grads = {name: np.zeros_like(p) for name, p in self.params.items()}

    def forward(self, x, h_prev):
        """One step, equations (1) and (2).

        Parameters
        ----------
        x : (N, D) float array
        h_prev : (N, H) float array
            The state after the step before.

        Returns
        -------
        h : (N, H),  cache
            The new state, and whatever ``backward`` will need of this step.

        Elman (1990).
        """
        W_xh, W_hh, b_h = self.params["W_xh"], self.params["W_hh"], self.params["b_h"]
        h = np.tanh(x @ W_xh + h_prev @ W_hh + b_h)  # (N, H)
        return h, (x, h_prev, h)

    def backward(self, dh, cache):
        """Backpropagate one step, equations (3) and (4).

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
        x, h_prev, h = cache
        da = np.multiply(dh, 1 - h**2, out=dh)
        self.grads["W_xh"] += x.T @ da  # (D, H)
        self.grads["W_hh"] += h_prev.T @ da  # (H, H)
        self.grads["b_h"] += da.sum(axis=0)  # (H,)
        return da @ self.params["W_xh"].T, da @ self.params["W_hh"].T


def rnn_forward(cell, x, h0, mask=None):
    """Run the cell over a batch of sequences.

    Parameters
    ----------
    cell : RNNCell
    x : (N, T, D) float array
    h0 : (N, H) float array
        The state before the first step.
    mask : (N, T) bool array or None
        True = real token, False = padding (the opposite of torch's key_padding_mask). Where it is
        False the state is carried over unchanged, equation (12). None means True everywhere.

    Returns
    -------
    h : (N, T, H),  cache
        h after every step, and whatever ``rnn_backward`` will need.
    """
    if mask is None:
        mask = np.ones(x.shape[:2], dtype=bool)  # (N, T)
    h = h0
    hs, caches = [], []
    for t in range(x.shape[1]):
        h_new, cache = cell.forward(x[:, t], h)
        h = np.where(mask[:, t, None], h_new, h)  # (N, H)
        hs.append(h)
        caches.append(cache)
    return np.stack(hs, axis=1), (caches, mask)  # (N, T, H)


def rnn_backward(cell, dh, cache):
    """Backpropagate through time, equation (5).

    Parameters
    ----------
    cell : RNNCell
    dh : (N, T, H) float array
        Gradient of the loss with respect to every ``h`` that ``rnn_forward`` returned.
    cache
        What ``rnn_forward`` returned.

    Returns
    -------
    dx : (N, T, D),  dh0 : (N, H)

    Adds the parameter gradients of all steps to ``cell.grads``. Where the mask was False no gradient
    reaches x or the parameters; what arrives at such a step goes on to the state that was carried
    over.

    Werbos (1990).
    """
    caches, mask = cache
    dh_next = np.zeros_like(dh[:, 0])  # (N, H)
    dxs = []
    for t in reversed(range(dh.shape[1])):
        dh_t = dh[:, t] + dh_next  # from above, and from step t + 1
        real = mask[:, t, None]  # (N, 1)
        dx, dh_prev = cell.backward(dh_t * real, caches[t])
        dh_next = dh_prev + dh_t * ~real
        dxs.append(dx)
    return np.stack(dxs[::-1], axis=1), dh_next  # (N, T, D), (N, H)


def sequence_cross_entropy(logits, targets, mask):
    """The mean negative log-likelihood of the real targets, and its gradient, equations (6) and (7).

    Parameters
    ----------
    logits : (N, T, K) float array
        Scores before the softmax.
    targets : (N, T) int array
        The right class, from 0 to K - 1; any integer where the mask is False, such as -100.
    mask : (N, T) bool array
        True = real token, False = padding (the opposite of torch's key_padding_mask).

    Returns
    -------
    loss : float
        In nats, the mean over all positions where the mask is True; 0.0 if there is none.
    dlogits : (N, T, K)
        The gradient of the loss; zeros where the mask is False.

    Finite, and without a RuntimeWarning, for logits of ±1e4.
    """
    logits = logits - logits.max(axis=2, keepdims=True)  # exp of these cannot overflow
    log_p = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))  # (N, T, K)
    chosen = np.arange(logits.shape[2]) == targets[:, :, None]  # (N, T, K)
    chosen = chosen & mask[:, :, None]
    count = max(mask.sum(), 1)
    loss = -log_p[chosen].sum() / count
    dlogits = (np.exp(log_p) - chosen) * mask[:, :, None] / logits.dtype.type(count)
    return float(loss), dlogits


def rnn_lm_loss(cell, embedding, W_hy, b_y, tokens, mask, h0):
    """One step of training a language model: the loss and every gradient, equation (8).

    Parameters
    ----------
    cell : RNNCell
        Its input size D is E.
    embedding : (V, E) float array
        A row for each token of the vocabulary.
    W_hy : (H, V) float array
    b_y : (V,) float array
    tokens : (N, T) int array
        Inputs are ``tokens[:, :-1]``, targets ``tokens[:, 1:]``. At padding any id from 0 to V - 1.
    mask : (N, T) bool array
        True = real token, False = padding (the opposite of torch's key_padding_mask). The loss is the
        mean over the targets whose mask is True; where the mask of an input is False the state is
        carried over. (With padding behind the end alone the second makes no difference.)
    h0 : (N, H) float array
        The state before the first token.

    Returns
    -------
    loss : float
        ``sequence_cross_entropy`` of the targets; 0.0 where T = 1, since nothing is predicted.
    grads : dict
        The gradients ``"embedding"`` (V, E), ``"W_hy"`` (H, V) and ``"b_y"`` (V,).

    Adds the gradients of the cell's parameters to ``cell.grads``.
    """
    grads = {"embedding": np.zeros_like(embedding)}
    if tokens.shape[1] == 1:
        return 0.0, grads | {"W_hy": np.zeros_like(W_hy), "b_y": np.zeros_like(b_y)}
    inputs, targets = tokens[:, :-1], tokens[:, 1:]  # (N, T - 1)
    h, cache = rnn_forward(cell, embedding[inputs], h0, mask[:, :-1])  # (N, T - 1, H)
    logits = h @ W_hy + b_y  # (N, T - 1, V)
    loss, dlogits = sequence_cross_entropy(logits, targets, mask[:, 1:])
    dx, _ = rnn_backward(cell, dlogits @ W_hy.T, cache)  # (N, T - 1, E)
    np.add.at(grads["embedding"], inputs, dx)  # a token that occurs twice gathers both
    grads["W_hy"] = np.einsum("nth,ntv->hv", h, dlogits)
    grads["b_y"] = dlogits.sum(axis=(0, 1))  # (V,)
    return loss, grads


def clip_by_global_norm(grads, max_norm):
    """Scale all gradients by one factor so that their common norm is at most max_norm, equation (9).

    Parameters
    ----------
    grads : dict of float arrays
    max_norm : float

    Returns
    -------
    clipped : dict
        New arrays under the same keys.
    norm : float
        The norm before clipping: the root of the sum of the squares of all entries of all arrays.

    Raises
    ------
    ValueError
        Naming ``max_norm``, if it is not above 0.

    Pascanu, Mikolov & Bengio (2013). No small number is added to the norm.
    """
    if max_norm <= 0:
        raise ValueError(f"max_norm must be above 0, and is {max_norm}")
    norm = float(np.sqrt(sum(np.sum(g**2) for g in grads.values())))
    scale = 1.0 if norm <= max_norm else max_norm / norm
    return {name: scale * g for name, g in grads.items()}, norm


def truncated_rnn_backward(cell, dh, cache, window):
    """Backpropagate through at most ``window`` steps at a time.

    Parameters
    ----------
    cell : RNNCell
    dh : (N, T, H) float array
        Gradient of the loss with respect to every ``h`` that ``rnn_forward`` returned.
    cache
        What ``rnn_forward`` returned, for the whole sequence.
    window : int
        Steps fall in windows [0, window), [window, 2 window), ...; the last may be shorter. Gradients
        flow within a window; what would leave it at its first step, for the step before, is dropped.

    Returns
    -------
    dx : (N, T, D)
    dh0 : (N, H)
        From the first window. With window >= T all is as in ``rnn_backward``.

    Adds the parameter gradients of all steps to ``cell.grads``.

    Raises
    ------
    ValueError
        Naming ``window``, if it is below 1.

    Williams & Peng (1990).
    """
    if window < 1:
        raise ValueError(f"window must be at least 1, and is {window}")
    caches, mask = cache
    dxs = []
    for start in reversed(range(0, dh.shape[1], window)):
        steps = slice(start, start + window)
        dx, dh_start = rnn_backward(cell, dh[:, steps], (caches[steps], mask[:, steps]))
        dxs.append(dx)
    return np.concatenate(dxs[::-1], axis=1), dh_start  # (N, T, D), (N, H)


def hidden_jacobian(h, W_hh, k, t):
    """How the state of step t answers to that of step k, equations (10) and (11).

    Parameters
    ----------
    h : (T, H) float array
        h of every step of one sequence, steps counted from 0.
    W_hh : (H, H) float array
    k, t : int
        0 <= k <= t < T.

    Returns
    -------
    (H, H) float array
        J[i, j] = ∂h_t[i] / ∂h_k[j]; the identity where k == t.

    Raises
    ------
    ValueError
        Naming ``k``, if k > t: a later state does not act on an earlier one.
    """
    if k > t:
        raise ValueError(f"k must not be after t, and k = {k} is after t = {t}")
    J = np.eye(h.shape[1], dtype=h.dtype)  # (H, H)
    for s in range(k + 1, t + 1):
        J = (1 - h[s, :, None] ** 2) * (W_hh.T @ J)
    return J


def jacobian_norms(h, W_hh):
    """How strongly the last state answers to every state before it.

    Parameters
    ----------
    h : (T, H) float array
        h of every step of one sequence.
    W_hh : (H, H) float array

    Returns
    -------
    (T,) float array
        The spectral norm (the largest singular value) of ∂h_{T-1} / ∂h_k for every k; the last is 1.

    In O(T H³): each Jacobian comes from its neighbour by one more factor.
    """
    J = np.eye(h.shape[1], dtype=h.dtype)  # (H, H)
    norms = []
    for h_k in h[::-1]:
        norms.append(np.linalg.norm(J, 2))
        J = J * (1 - h_k**2) @ W_hh.T  # one step further back
    return np.array(norms[::-1])  # (T,)
