"""Right, and unlike the reference: Python lists, einsum, a mask that fills."""

import torch

print("loading my twin")


def rnn_forward_torch(params, x, h0, mask=None):
    inputs = torch.einsum("ntd,dh->tnh", x, params["W_xh"])
    states = [h0]
    for t in range(x.size(1)):
        h = states[-1]
        new = torch.tanh(torch.matmul(h, params["W_hh"]) + inputs[t] + params["b_h"])
        if mask is not None:
            padding = ~mask[:, t : t + 1]
            new = new.masked_fill(padding, 0) + h.masked_fill(~padding, 0)
        states.append(new)
    print("forward over", x.size(1), "steps")
    return torch.cat([h.unsqueeze(1) for h in states[1:]], 1)
