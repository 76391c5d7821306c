"""Right, and unlike the reference: time first, functional calls, results written into one tensor."""

import torch
from torch.nn import functional


def gru_forward_torch(params, x, h0, mask=None):
    N, T, D = x.shape
    H = h0.shape[-1]
    weight, weight_h = params["W"].t(), params["W_h"].t()
    gates = functional.linear(x.transpose(0, 1), weight[:, :D], params["b"]).unbind(0)
    inputs = functional.linear(x.transpose(0, 1), weight_h[:, :D], params["b_h"]).unbind(0)
    out = x.new_zeros(N, T, H)
    h = h0
    for t in range(T):
        r, z = functional.linear(h, weight[:, D:]).add(gates[t]).sigmoid().view(N, 2, H).unbind(1)
        new = functional.linear(r.mul(h), weight_h[:, D:]).add(inputs[t]).tanh()
        h_next = torch.addcmul(h - z * h, z, new)
        if mask is not None:
            keep = mask[:, t].to(x.dtype).unsqueeze(-1)
            h_next = keep * h_next + (1 - keep) * h
        h = h_next
        out[:, t] = h
    return out
