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
    raise NotImplementedError("sigmoid")


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
        raise NotImplementedError("LSTMCell.__init__")

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
        raise NotImplementedError("LSTMCell.forward")

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
        raise NotImplementedError("LSTMCell.backward")


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
    raise NotImplementedError("lstm_forward")


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
    raise NotImplementedError("lstm_backward")


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
    raise NotImplementedError("carousel_gradient")
