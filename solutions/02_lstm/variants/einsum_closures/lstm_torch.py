"""Right, and unlike the reference: time first, functional calls, results written into one tensor."""

import torch
from torch.nn import functional


def lstm_forward_torch(params, x, h0, c0, mask=None):
    N, T, D = x.shape
    H = h0.shape[-1]
    weight = params["W"].t()
    by_x, by_h = weight[:, :D], weight[:, D:]
    projected = functional.linear(x.transpose(0, 1), by_x, params["b"]).unbind(0)
    out = x.new_zeros(N, T, H)
    h, c = h0, c0
    for t, a in enumerate(projected):
        f, i, g, o = functional.linear(h, by_h).add(a).view(N, 4, H).unbind(1)
        c_next = torch.addcmul(f.sigmoid() * c, i.sigmoid(), g.tanh())
        h_next = c_next.tanh().mul(o.sigmoid())
        if mask is not None:
            keep = mask[:, t].to(x.dtype).unsqueeze(-1)
            h_next = keep * h_next + (1 - keep) * h
            c_next = keep * c_next + (1 - keep) * c
        h, c = h_next, c_next
        out[:, t] = h
    return out, c
