"""The GRU of gru.py in PyTorch: the same numbers, any device, and autograd for the gradients.

Letters and layout are those of gru.py: N batch, T time, D input size, H hidden size; batch first,
samples are rows. Equation numbers are the handout's.
"""

import torch


def gru_forward_torch(params, x, h0, mask=None):
    """Run ``GRUCell`` over a batch of sequences, equations (1) to (4) at every step.

    Parameters
    ----------
    params : dict of float tensors
        ``"W"``: (D + H, 2 H), ``"b"``: (2 H,), ``"W_h"``: (D + H, H), ``"b_h"``: (H,), laid out as in
        ``GRUCell``: rows of x before rows of h, column blocks [r, z].
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
        respect to ``x``, ``h0`` and all four parameters.

    What x adds to the gates and to the candidate does not depend on the state before: for all steps
    together it is one product with W and one with W_h, made before the loop. torch.nn.GRU and its kin
    may not be used.
    """
    D = x.shape[2]
    a_x = (x @ params["W"][:D] + params["b"]).unbind(dim=1)  # T times (N, 2 H)
    a_new = (x @ params["W_h"][:D] + params["b_h"]).unbind(dim=1)  # T times (N, H)
    U, U_h = params["W"][D:], params["W_h"][D:]  # (H, 2 H), (H, H)
    h = h0
    hs = []
    for t in range(x.shape[1]):
        r, z = torch.sigmoid(a_x[t] + h @ U).chunk(2, dim=1)  # twice (N, H)
        h_new = torch.tanh(a_new[t] + (r * h) @ U_h)
        h_t = (1 - z) * h + z * h_new
        h = h_t if mask is None else torch.where(mask[:, t, None], h_t, h)
        hs.append(h)
    return torch.stack(hs, dim=1)  # (N, T, H)
