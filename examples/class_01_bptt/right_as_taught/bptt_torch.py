"""The RNN of bptt.py in PyTorch: the same numbers, any device, and autograd for the gradients.

Letters and layout are those of bptt.py: N batch, T time, D input size, H hidden size; batch first,
samples are rows. Equation numbers are the handout's.
"""

import torch


def rnn_forward_torch(params, x, h0, mask=None):
    """Run a vanilla RNN over a batch of sequences, equations (1) and (2) at every step.

    Parameters
    ----------
    params : dict of float tensors
        ``"W_xh"``: (D, H), ``"W_hh"``: (H, H), ``"b_h"``: (H,), as in ``RNNCell``.
    x : (N, T, D) float tensor
    h0 : (N, H) float tensor
        The state before the first step.
    mask : (N, T) bool tensor or None
        True = real token, False = padding (the opposite of torch's key_padding_mask). Where it is
        False the state is carried over unchanged, and no gradient reaches x or the parameters. None
        means True everywhere.

    Returns
    -------
    h : (N, T, H)
        h after every step. On the device and with the dtype of the inputs, and differentiable with
        respect to ``x``, ``h0`` and the three parameters.

    The input projections x W_xh do not depend on the state before: those of all steps are one
    product, made before the loop. torch.nn.RNN and its cell may not be used.
    """
    a_x = (x @ params["W_xh"] + params["b_h"]).unbind(dim=1)  # T times (N, H)
    h = h0
    hs = []
    for t in range(x.shape[1]):
        h_t = torch.tanh(a_x[t] + h @ params["W_hh"])  # (N, H)
        if mask is not None:
            h_t = torch.where(mask[:, t, None], h_t, h)
        h = h_t
        hs.append(h)
    return torch.stack(hs, dim=1)  # (N, T, H)
