"""Make the handout's figures: how strongly one state answers to an earlier one.

    python solutions/01_bptt/make_figure.py

assignments/01_bptt/jacobians.svg: random weights, whose size decides. assignments/01_bptt/radius.svg: one
matrix, whose eigenvalues do not. Every curve is the spectral norm of ∂h_t/∂h_k, from the reference's own
``jacobian_norms``, at each distance t - k. Needs matplotlib; the files are the same each time, and their
descriptions hold the curves.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
PUBLIC = HERE.parents[1] / "assignments" / HERE.name
sys.path.insert(0, str(HERE))

import bptt  # noqa: E402

H = 16
DISTANCES = 40
WARM_UP = 20  # steps before the first that is looked at, so that states are typical
CELLS = 10  # every curve of the first figure is the geometric mean over so many cells

Curves = dict[str, list[float]]  # a norm for each distance from 1 on, by the curve's name


def states(W_hh: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """h (T, H) of h_t = tanh(h_{t-1} W_hh + inputs[t]), from a state of zeros."""
    cell = bptt.RNNCell(len(W_hh), len(W_hh), np.random.default_rng(0))
    cell.params = {"W_xh": np.eye(len(W_hh)), "W_hh": W_hh, "b_h": np.zeros(len(W_hh))}
    h, _ = bptt.rnn_forward(cell, inputs[None], np.zeros((1, len(W_hh))))
    return h[0]


def norms(W_hh: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The spectral norm at each distance from the last state, from 1 on."""
    return bptt.jacobian_norms(h, W_hh)[-2::-1]


def by_size() -> Curves:
    """Curves of random cells: how large W_hh is, and how large the inputs are."""
    kinds = {  # ‖W_hh‖₂ of an orthogonal matrix, or spectral radius of a normal one; size of the inputs
        "small": ("orthogonal", 0.9, 0.5),
        "orthogonal": ("orthogonal", 1.0, 0.5),
        "large": ("normal", 1.5, 0.0),
        "large_saturated": ("normal", 1.5, 3.0),
    }
    found = {}
    for name, (kind, size, scale) in kinds.items():
        logs = []
        for seed in range(CELLS):
            rng = np.random.default_rng(seed)
            W_hh, inputs = rng.normal(size=(H, H)), rng.normal(size=(WARM_UP + DISTANCES + 1, H))
            if kind == "orthogonal":
                W_hh = size * np.linalg.qr(W_hh)[0]
            else:
                W_hh *= size / np.abs(np.linalg.eigvals(W_hh)).max()
            h = states(W_hh, scale * inputs)[WARM_UP:]
            logs.append(np.log(norms(W_hh, h)))
        found[name] = np.exp(np.mean(logs, axis=0))
    found["bound"] = 0.9 ** np.arange(1, DISTANCES + 1)
    return _rounded(found)


W = 4 * np.array([[1.0, -1.0], [1.0, -1.0]])  # acts on columns: both eigenvalues are 0
HELD = np.array([0.0, np.sqrt(1 / 2)])  # slopes 1 and 1/2: D W has the eigenvalues 0 and 2
STEPS = 20


def by_radius() -> Curves:
    """Curves of the one cell: inputs that hold h at HELD, none, and large ones that saturate it."""
    W_hh = W.T  # states are rows in the code
    held = np.arctanh(HELD) - HELD @ W_hh  # what keeps h where it is
    inputs = {
        "held": np.vstack([np.arctanh(HELD), *[held] * STEPS]),
        "silent": np.zeros((STEPS + 1, 2)),
        "saturated": np.tile([6.0, -6.0], (STEPS + 1, 1)),
    }
    return _rounded({name: norms(W_hh, states(W_hh, x)) for name, x in inputs.items()})


def _rounded(curves: dict[str, np.ndarray]) -> Curves:
    return {name: [float(f"{norm:.3g}") for norm in curve] for name, curve in curves.items()}


def draw(found: Curves, name: str, path: Path) -> None:
    """Write the figure ``name`` of the curves."""
    import matplotlib as mpl

    style = {
        "svg.hashsalt": name,  # ids that are the same each time
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
        _draw(found, _FIGURES[name], path)


RHO = "\N{GREEK SMALL LETTER RHO}"
# Of each figure its title, limits, and of each curve its colour, its words and where these stand: a
# distance, and how far above the curve in decades.
_FIGURES = {
    "jacobians": (
        "Random weights and inputs",
        (1e-12, 1e9),
        {
            "large": ("#8c2d04", f"{RHO} = 1.5, no input: h = 0", 18, 2.6),
            "orthogonal": ("#0b79a8", "W orthogonal", 36.5, 1.15),
            "small": ("#12355b", "‖W‖₂ = 0.9", 35, -1.0),
            "bound": ("#8a8a8a", "the bound 0.9ⁿ", 30, 2.2),
            "large_saturated": ("#d07a1f", f"{RHO} = 1.5, large inputs", 22, -2.0),
        },
    ),
    "radius": (
        "W = 4 [[1, -1], [1, -1]], whose eigenvalues are both 0",
        (1e-30, 1e10),
        {
            "held": ("#8c2d04", "inputs hold h = (0, √½)", 9, 4.0),
            "silent": ("#12355b", "no input, h = 0: exactly 0 from 2 steps on", 6.2, -3.0),
            "saturated": ("#d07a1f", "large inputs: tanh is saturated", 15.4, 3.0),
        },
    ),
}


def _draw(found: Curves, how: tuple, path: Path) -> None:
    from matplotlib.figure import Figure

    title, limits, curves = how
    figure = Figure(figsize=(7.2, 3.8), facecolor="white", layout="constrained")
    axes = figure.subplots()
    longest = max(len(curve) for curve in found.values())
    axes.set(title=title, yscale="log", ylim=limits, xlim=(0, longest))
    axes.set(xlabel="distance t - k, in steps", ylabel="spectral norm of ∂h_t/∂h_k")
    axes.set_xticks(range(0, longest + 1, 5))
    axes.axhline(1, color="black", linewidth=0.8)
    for name, (colour, words, distance, above) in curves.items():
        shown = [(n, norm) for n, norm in enumerate(found[name], 1) if norm > limits[0]]
        line = {"linewidth": 1.3, "linestyle": "--"} if name == "bound" else {"linewidth": 2.2}
        line |= {"marker": "o", "markersize": 5} if len(shown) == 1 else {}
        axes.plot(*zip(*shown, strict=True), color=colour, **line)
        near = min(shown, key=lambda point: abs(point[0] - distance))[1]
        place = (distance, near * 10**above)
        axes.text(*place, words, color=colour, weight="bold", ha="center", va="center")
    about = {"Description": json.dumps(found), "Date": None, "Creator": None}
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata=about)
    lines = [line.rstrip() for line in svg.getvalue().splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def all_curves() -> dict[str, Curves]:
    """The curves of both figures, by the figure's name."""
    return {"jacobians": by_size(), "radius": by_radius()}


if __name__ == "__main__":
    for name, found in all_curves().items():
        draw(found, name, PUBLIC / f"{name}.svg")
        print(PUBLIC / f"{name}.svg")
