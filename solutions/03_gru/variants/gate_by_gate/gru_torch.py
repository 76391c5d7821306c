"""Right, and unlike the reference: one gate after the other, Python lists, a sigmoid made of tanh."""

import torch

print("loading my twin")


def squash(a):
    return (torch.tanh(a / 2) + 1) / 2


def gru_forward_torch(params, x, h0, mask=None):
    D, H = x.size(2), h0.size(1)
    W, b = torch.cat([params["W"], params["W_h"]], dim=1), torch.cat([params["b"], params["b_h"]])
    by_x, by_h = torch.split(W, [D, H])
    from_x = torch.einsum("ntd,dk->tnk", x, by_x) + b
    states = [h0]
    for t in range(x.size(1)):
        h = states[-1]
        r = squash(from_x[t][:, :H] + torch.matmul(h, by_h[:, :H]))
        z = squash(from_x[t][:, H : 2 * H] + torch.matmul(h, by_h[:, H : 2 * H]))
        new = torch.tanh(from_x[t][:, 2 * H :] + torch.matmul(r * h, by_h[:, 2 * H :]))
        new = torch.lerp(h, new, z)
        if mask is not None:
            padding = ~mask[:, t : t + 1]
            new = new.masked_fill(padding, 0) + h.masked_fill(~padding, 0)
        states.append(new)
    print("forward over", x.size(1), "steps")
    return torch.cat([h.unsqueeze(1) for h in states[1:]], 1)
