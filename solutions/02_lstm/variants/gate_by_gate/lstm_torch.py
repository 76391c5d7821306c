"""Right, and unlike the reference: one gate after the other, Python lists, a sigmoid made of tanh."""

import torch

print("loading my twin")


def squash(z):
    return (torch.tanh(z / 2) + 1) / 2


def lstm_forward_torch(params, x, h0, c0, mask=None):
    H = h0.size(1)
    W_x, W_h = torch.split(params["W"], [x.size(2), H])
    inputs, weights = [], []
    for k in range(4):
        columns = slice(k * H, (k + 1) * H)
        inputs.append(torch.einsum("ntd,dh->tnh", x, W_x[:, columns]) + params["b"][columns])
        weights.append(W_h[:, columns])
    states = [(h0, c0)]
    for t in range(x.size(1)):
        h, c = states[-1]
        f, i, candidate, o = (
            a[t] + torch.matmul(h, w) for a, w in zip(inputs, weights, strict=True)
        )
        new_c = squash(f) * c + squash(i) * torch.tanh(candidate)
        new_h = squash(o) * torch.tanh(new_c)
        if mask is not None:
            padding = ~mask[:, t : t + 1]
            new_h = new_h.masked_fill(padding, 0) + h.masked_fill(~padding, 0)
            new_c = new_c.masked_fill(padding, 0) + c.masked_fill(~padding, 0)
        states.append((new_h, new_c))
    print("forward over", x.size(1), "steps")
    return torch.cat([h.unsqueeze(1) for h, _ in states[1:]], 1), states[-1][1]
