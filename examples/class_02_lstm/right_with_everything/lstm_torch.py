"""The LSTM of lstm.py in PyTorch: the same numbers, any device, and autograd for the gradients.

Letters and layout are those of lstm.py: N batch, T time, D input size, H hidden size; batch first,
samples are rows. Equation numbers are the handout's.
"""

import torch


def lstm_forward_torch(params, x, h0, c0, mask=None):
    """Run an LSTM over a batch of sequences, equations (1) to (5) at every step.

    Parameters
    ----------
    params : dict of float tensors
        ``"W"``: (D + H, 4 H), ``"b"``: (4 H,), laid out as in ``LSTMCell``: rows of x before rows of
        h, column blocks [f, i, c, o].
    x : (N, T, D) float tensor
    h0, c0 : (N, H) float tensors
        The state before the first step.
    mask : (N, T) bool tensor or None
        True = real token, False = padding (the opposite of torch's key_padding_mask). Where it is
        False the state is carried over unchanged, and no gradient reaches x or the parameters. None
        means True everywhere.

    Returns
    -------
    h : (N, T, H),  c_last : (N, H)
        h after every step, and c after the last one. On the device and with the dtype of the
        inputs, and differentiable with respect to ``x``, ``h0``, ``c0`` and both parameters.

    The input projections x W do not depend on the state before: those of all steps are one product,
    made before the loop. torch.nn.LSTM and its kin may not be used.
    """
    D = x.shape[2]
    W_x, W_h = params["W"][:D], params["W"][D:]  # (D, 4 H), (H, 4 H)
    a_x = (x @ W_x + params["b"]).unbind(dim=1)  # T times (N, 4 H)
    h, c = h0, c0
    hs = []
    for t in range(x.shape[1]):
        a = a_x[t] + h @ W_h  # (N, 4 H)
        a_f, a_i, a_c, a_o = a.chunk(4, dim=1)  # four times (N, H)
        f, i, o = torch.sigmoid(a_f), torch.sigmoid(a_i), torch.sigmoid(a_o)
        c_t = f * c + i * torch.tanh(a_c)
        h_t = o * torch.tanh(c_t)
        if mask is not None:
            real = mask[:, t, None]  # (N, 1)
            h_t, c_t = torch.where(real, h_t, h), torch.where(real, c_t, c)
        h, c = h_t, c_t
        hs.append(h)
    return torch.stack(hs, dim=1), c  # (N, T, H), (N, H)
