"""Make the handout's figure, assignments/06_positions/distances.svg: what scores know of distances.

    python solutions/06_positions/make_figure.py

Left: how much of a score RoPE leaves, on average, where query and key are equal and some tokens apart,
for two bases. Right: how much three ways to stretch a context slow each pair of a head. Needs matplotlib;
the file's description holds the curves.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
FIGURE = HERE.parents[1] / "assignments" / HERE.name / "distances.svg"
sys.path.insert(0, str(HERE))

import positions  # noqa: E402

D, BASE = 64, 10000.0
ORIGINAL, FACTOR = 2048, 4.0
DISTANCES = [0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1024]


def kept(distance: int, base: float) -> float:
    """q · R k / q · q for q = k, averaged over the pairs: the mean cosine of their turns."""
    cos, _ = positions.rope_angles(torch.tensor([float(distance)]).double(), D, base)
    return float(cos.mean())


def curves() -> dict[str, list[float]]:
    """Every curve by name."""
    pairs = torch.arange(D // 2, dtype=torch.float64)
    plain = BASE ** (-2 * pairs / D)
    slowed = positions.ntk_base(BASE, D, FACTOR) ** (-2 * pairs / D)
    yarn = positions.yarn_inv_freq(D, BASE, FACTOR, ORIGINAL).double()
    return {
        "kept, base 10000": [round(kept(n, BASE), 3) for n in DISTANCES],
        "kept, base 500000": [round(kept(n, 500000.0), 3) for n in DISTANCES],
        "interpolation": [1 / FACTOR] * (D // 2),
        "NTK": [round(float(ratio), 4) for ratio in slowed / plain],
        "YaRN": [round(float(ratio), 4) for ratio in yarn / plain],
    }


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Write the figure of ``curves()``."""
    import matplotlib as mpl

    style = {
        "svg.hashsalt": "distances",  # ids that are the same each time
        "svg.fonttype": "none",  # words stay words: small, and can be searched
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial"],
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e4e4e4",
        "grid.linewidth": 0.6,
    }
    with mpl.rc_context(style):
        _draw(found, path)


_LEFT = {
    "kept, base 10000": ("base 10000", "#12355b", "-"),
    "kept, base 500000": ("base 500000", "#0b79a8", "--"),
}
_RIGHT = {
    "interpolation": ("interpolation", "#d07a1f", "-"),
    "NTK": ("another base (NTK)", "#0b79a8", "--"),
    "YaRN": ("YaRN", "#12355b", "-"),
}


def _draw(found: dict[str, list[float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2)
    left.set(xlabel="distance in tokens", ylabel="share of the score that is left", ylim=(0, 1.05))
    left.set_xscale("symlog", linthresh=1)
    left.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
    for name, (label, colour, dashes) in _LEFT.items():
        left.plot(DISTANCES, found[name], dashes, color=colour, linewidth=2.2, label=label)
    left.legend(loc="lower left", frameon=False)
    right.set(xlabel="pair i", ylabel="new frequency / old one", ylim=(0, 1.05))
    for name, (label, colour, dashes) in _RIGHT.items():
        right.plot(range(D // 2), found[name], dashes, color=colour, linewidth=2.2, label=label)
    right.legend(loc="upper right", frameon=False)
    about = {"Description": json.dumps(found), "Date": None, "Creator": None}
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata=about)
    lines = [line.rstrip() for line in svg.getvalue().splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    draw(curves(), FIGURE)
    print(FIGURE)
