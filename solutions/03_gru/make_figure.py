"""Make the handout's figure, assignments/03_gru/reach.svg: how far gradients reach, at what price.

    python solutions/03_gru/make_figure.py

Left, for ∂h_t/∂h_k and every distance t - k: the full derivative, from the reference's own backward
pass, beside the direct path, the product of 1 - z. Right: parameters of both GRUs as shares of an
LSTM's. Needs matplotlib; the file is the same each time, and its description holds the curves.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
FIGURE = HERE.parents[1] / "assignments" / HERE.name / "reach.svg"
sys.path.insert(0, str(HERE))

import gru  # noqa: E402

D = H = 16
DISTANCES = 60
WARM_UP = 20  # steps before the first that is looked at, so that states are typical
CELLS = 10  # every curve is the geometric mean over so many cells
LARGEST = 60  # the largest D + H on the right

Curve = np.ndarray  # (DISTANCES,): a gain for each distance from 1 on


def gru_gains(seed: int, update_bias: float) -> tuple[Curve, Curve]:
    """The full derivative's gain and the direct path's, for one cell on one random sequence.

    The gain of a Jacobian J is the root mean square factor by which it scales a gradient of random
    direction, ‖J‖_F / √H. ∂h_t/∂h_k is what ``GRUCell.backward`` returns as dh_prev, step by step.
    """
    rng = np.random.default_rng(seed)
    cell = gru.GRUCell(D, H, rng)
    cell.params["b"][H:] = update_bias
    x = rng.normal(size=(WARM_UP + DISTANCES, D))
    h = np.zeros((H, H))  # H equal rows, one for each row of the Jacobian
    kept, caches = [], []
    for x_t in np.repeat(x[:, None], H, axis=1):
        a = np.hstack([x_t, h])[:1] @ cell.params["W"] + cell.params["b"]
        kept.append(1 - gru.sigmoid(a[0, H:]))
        h, cache = cell.forward(x_t, h)
        caches.append(cache)
    dh, direct = np.eye(H), np.ones(H)
    full_gains, direct_gains = [], []
    for share, cache in list(zip(kept, caches, strict=True))[: WARM_UP - 1 : -1]:
        _, dh = cell.backward(dh, cache)
        direct = direct * share
        full_gains.append(np.sqrt(np.sum(dh**2) / H))
        direct_gains.append(np.sqrt(np.mean(direct**2)))
    return np.array(full_gains), np.array(direct_gains)


def rnn_gains(seed: int) -> Curve:
    """The gain of ∂h_t/∂h_k in h_t = tanh([x_t, h_{t-1}] W), W drawn as W_h of a GRU is."""
    rng = np.random.default_rng(seed)
    W = rng.normal(0.0, (D + H) ** -0.5, size=(D + H, H))
    h, states = np.zeros(H), []
    for x_t in rng.normal(size=(WARM_UP + DISTANCES, D)):
        h = np.tanh(np.concatenate([x_t, h]) @ W)
        states.append(h)
    dh, gains = np.eye(H), []
    for h in states[: WARM_UP - 1 : -1]:
        dh = (dh * (1 - h**2)) @ W[D:].T
        gains.append(np.sqrt(np.sum(dh**2) / H))
    return np.array(gains)


def curves() -> dict[str, list[float]]:
    """Every curve of the figure by name, to three digits."""
    gains = {"rnn": [rnn_gains(seed) for seed in range(CELLS)]}
    for bias in (0, -1, -2):
        both = [gru_gains(seed, bias) for seed in range(CELLS)]
        gains[f"full_{bias}"], gains[f"direct_{bias}"] = zip(*both, strict=True)
    means = {name: np.exp(np.mean(np.log(each), axis=0)) for name, each in gains.items()}
    for kind in ("gru", "gru_reset_after"):  # only D + H counts: D is 1 here
        hidden = range(1, LARGEST)
        shares = [
            gru.count_parameters(kind, 1, n) / gru.count_parameters("lstm", 1, n) for n in hidden
        ]
        means[f"share_{kind}"] = np.array(shares)
    return {name: [float(f"{value:.3g}") for value in mean] for name, mean in means.items()}


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Write the figure of ``curves()``."""
    import matplotlib as mpl

    style = {
        "svg.hashsalt": "reach",  # ids that are the same each time
        "svg.fonttype": "none",  # words stay words: small, and can be searched
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial"],
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e4e4e4",
        "grid.linewidth": 0.6,
    }
    with mpl.rc_context(style):
        _draw(found, path)


# The darker, the more is kept: the order shows without colour too.
_COLOURS = {"rnn": "#8a8a8a", "0": "#d07a1f", "-1": "#0b79a8", "-2": "#12355b"}
# What a line is called, and the distance at which that stands on it.
_LABELS = {
    "rnn": ("tanh RNN", 17),
    "0": ("bias 0", 30),
    "-1": ("bias -1", 40),
    "-2": ("update bias -2", 42),
}


def _draw(found: dict[str, list[float]], path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(9, 4.4), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    solid, dashed = {"linewidth": 2.2}, {"linewidth": 1.3, "linestyle": "--"}
    left.set(yscale="log", ylim=(1e-10, 10), xlim=(0, DISTANCES), xlabel="distance t - k, in steps")
    left.axhline(1, color="black", linewidth=0.8)
    for name, (text, distance) in _LABELS.items():
        curve = found["rnn" if name == "rnn" else f"full_{name}"]
        direct = found.get(f"direct_{name}", [])
        left.plot(range(1, DISTANCES + 1), curve, color=_COLOURS[name], **solid)
        left.plot(range(1, len(direct) + 1), direct, color=_COLOURS[name], **dashed)
        _label(left, distance, curve[distance - 1], text, _COLOURS[name])
    left.set(title="New cells, random input: gradients decay", ylabel="gain of the gradient")
    right.set(title="Parameters, as a share of an LSTM's", xlabel="D + H", xlim=(0, LARGEST))
    right.set(ylim=(0.6, 1.2))
    right.axhline(1, color="black", linewidth=0.8)
    for kind, text, at in (("gru", "GRUCell", 30), ("gru_reset_after", "ResetAfterGRUCell", 30)):
        shares = found[f"share_{kind}"]
        colour = _COLOURS["-2" if kind == "gru" else "0"]
        right.plot(range(2, LARGEST + 1), shares, color=colour, **solid)
        lift = -0.03 if kind == "gru" else 0.04
        _label(right, at, shares[at] + lift, text, colour)
    figure.legend(
        [Line2D([], [], color="black", **style) for style in (solid, dashed)],
        ["full derivative", "direct path, the product of 1 - z"],
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    about = {"Description": json.dumps(found), "Date": None, "Creator": None}
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata=about)
    lines = [line.rstrip() for line in svg.getvalue().splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def _label(axes, x, y, text, colour) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    axes.text(x, y, text, color=colour, weight="bold", ha="center", va="center", bbox=box)


if __name__ == "__main__":
    draw(curves(), FIGURE)
    print(FIGURE)
