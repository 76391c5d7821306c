"""Make the handout's figure, assignments/02_lstm/decay.svg: how gradients decay with distance.

    python solutions/02_lstm/make_figure.py

For ∂c_t/∂c_k and every distance t - k: the full derivative, from the reference's own backward pass,
beside the direct path, the product of the forget gates. Needs matplotlib; the file is the same each
time, and its description holds the curves.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
FIGURE = HERE.parents[1] / "assignments" / HERE.name / "decay.svg"
sys.path.insert(0, str(HERE))

import lstm  # noqa: E402

D = H = 16
DISTANCES = 60
WARM_UP = 20  # steps before the first that is looked at, so that states are typical
CELLS = 10  # every curve is the geometric mean over so many cells

Curve = np.ndarray  # (DISTANCES,): a gain for each distance from 1 on


def lstm_gains(
    seed: int, forget_bias: float, weight_scale: float = 1.0, input_scale: float = 1.0
) -> tuple[Curve, Curve]:
    """The full derivative's gain and the direct path's, for one cell on one random sequence.

    The gain of a Jacobian J is the root mean square factor by which it scales a gradient of random
    direction, ‖J‖_F / √H. ∂c_t/∂c_k is what ``LSTMCell.backward`` returns as dc_prev, step by step,
    when nothing but dc_last arrives.
    """
    rng = np.random.default_rng(seed)
    cell = lstm.LSTMCell(D, H, rng, forget_bias)
    cell.params["W"] *= weight_scale
    x = input_scale * rng.normal(size=(WARM_UP + DISTANCES, D))
    h, c = np.zeros((H, H)), np.zeros((H, H))  # H equal rows, one for each row of the Jacobian
    forget_gates, caches = [], []
    for x_t in np.repeat(x[:, None], H, axis=1):
        a_f = np.hstack([x_t, h])[:1] @ cell.params["W"][:, :H] + cell.params["b"][:H]
        forget_gates.append(lstm.sigmoid(a_f)[0])
        h, c, cache = cell.forward(x_t, h, c)
        caches.append(cache)
    dh, dc, direct = np.zeros((H, H)), np.eye(H), np.ones(H)
    full_gains, direct_gains = [], []
    for f, cache in list(zip(forget_gates, caches, strict=True))[: WARM_UP - 1 : -1]:
        _, dh, dc = cell.backward(dh, dc, cache)
        direct = direct * f
        full_gains.append(np.sqrt(np.sum(dc**2) / H))
        direct_gains.append(np.sqrt(np.mean(direct**2)))
    return np.array(full_gains), np.array(direct_gains)


def rnn_gains(seed: int) -> Curve:
    """The gain of ∂h_t/∂h_k in h_t = tanh([x_t, h_{t-1}] W), W drawn as an LSTM's is."""
    rng = np.random.default_rng(seed)
    W = rng.normal(0.0, np.sqrt(2 / (D + H)), size=(D + H, H))
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
    for bias in (0, 1, 2):
        both = [lstm_gains(seed, bias) for seed in range(CELLS)]
        gains[f"full_{bias}"], gains[f"direct_{bias}"] = zip(*both, strict=True)
    # without input h and c stay 0, and every forget gate is exactly sigmoid(1)
    both = [lstm_gains(seed, 1, weight_scale=2, input_scale=0) for seed in range(CELLS)]
    gains["full_silent"], gains["direct_silent"] = zip(*both, strict=True)
    means = {name: np.exp(np.mean(np.log(each), axis=0)) for name, each in gains.items()}
    return {name: [float(f"{gain:.3g}") for gain in mean] for name, mean in means.items()}


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Write the figure of ``curves()``."""
    import matplotlib as mpl

    style = {
        "svg.hashsalt": "decay",  # ids that are the same each time
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
_COLOURS = {"rnn": "#8a8a8a", "0": "#d07a1f", "1": "#0b79a8", "2": "#12355b", "silent": "#0b79a8"}
# What a line is called, and the distance at which that stands on it.
_LABELS = {
    "rnn": ("tanh RNN", 34),
    "0": ("bias 0", 25),
    "1": ("bias 1", 40),
    "2": ("forget bias 2", 45),
    "silent": ("forget bias 1", 40),
}


def _draw(found: dict[str, list[float]], path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(9, 4.4), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    solid, dashed = {"linewidth": 2.2}, {"linewidth": 1.3, "linestyle": "--"}
    for axes, names in ((left, ("rnn", "0", "1", "2")), (right, ("silent",))):
        axes.set(
            yscale="log", ylim=(1e-10, 1e4), xlim=(0, DISTANCES), xlabel="distance t - k, in steps"
        )
        axes.axhline(1, color="black", linewidth=0.8)
        for name in names:
            curve = found["rnn" if name == "rnn" else f"full_{name}"]
            direct = found.get(f"direct_{name}", [])
            axes.plot(range(1, DISTANCES + 1), curve, color=_COLOURS[name], **solid)
            axes.plot(range(1, len(direct) + 1), direct, color=_COLOURS[name], **dashed)
            text, distance = _LABELS[name]
            axes.text(
                *(distance, curve[distance - 1], text),
                color=_COLOURS[name],
                weight="bold",
                ha="center",
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
    left.set(title="New cells, random input: gradients decay", ylabel="gain of the gradient")
    right.set(title="No input, W twice as large: they grow")
    figure.legend(
        [Line2D([], [], color="black", **style) for style in (solid, dashed)],
        ["full derivative", "direct path, the product of the forget gates"],
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    about = {"Description": json.dumps(found), "Date": None, "Creator": None}
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata=about)
    lines = [line.rstrip() for line in svg.getvalue().splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    draw(curves(), FIGURE)
    print(FIGURE)
