"""Make the handout's figure, assignments/07_transformer/depth_and_cost.svg.

    python solutions/07_transformer/make_figure.py

Left: gradients of new models against their depth, with the norm before and after. Right: operations for
one more token, with caches and without. Needs matplotlib; the file's description holds the curves.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

HERE = Path(__file__).resolve().parent
TOPIC = HERE.parents[1] / "assignments" / HERE.name
FIGURE = TOPIC / "depth_and_cost.svg"
sys.path[:0] = [str(HERE), str(TOPIC)]

import transformer  # noqa: E402

E, HEADS, D_FF, V = 64, 4, 256, 100  # of the models on the left
DEPTHS = (1, 2, 4, 8, 16, 32)
SEEDS = 3
# of the model on the right: GPT-2's smallest
WIDTH, BLOCKS, VOCABULARY = 768, 12, 50257
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def last_gradient(norm: str, depth: int, seed: int) -> float:
    """The norm of the gradient of the last block's ``ffn.down.weight``, in a new model.

    Weights are drawn by Xavier and Glorot's normal rule, as Xiong et al. (2020) assume; inputs and
    targets are random, the loss is the mean cross-entropy.
    """
    torch.manual_seed(seed)
    blocks = [transformer.EncoderBlock(E, HEADS, D_FF, norm) for _ in range(depth)]
    final = transformer.LayerNorm(E)
    out = torch.nn.Linear(E, V)
    for module in [*blocks, out]:
        for parameter in module.parameters():
            if parameter.dim() > 1:
                torch.nn.init.xavier_normal_(parameter)
    x, targets = torch.randn(8, 32, E), torch.randint(V, (8 * 32,))
    for block in blocks:
        x = block(x)
    logits = out(final(x) if norm == "pre" else x)
    F.cross_entropy(logits.flatten(0, 1), targets).backward()
    gradient = blocks[-1].ffn.down.weight.grad
    assert gradient is not None
    return gradient.norm().item()


def operations(length: int, cached: bool) -> int:
    """Floating-point operations of the right model for the logits of token number ``length``.

    Two for each multiplication with its addition, in matrix products alone. Without caches all the tokens
    go through the model anew, and the logits of all are computed.
    """
    weights = BLOCKS * 12 * WIDTH**2 + WIDTH * VOCABULARY  # d_ff = 4 E: 4 E² + 8 E² a block
    attention = BLOCKS * 2 * WIDTH * length  # scores, and the weighted sum of values
    return (1 if cached else length) * 2 * (weights + attention)


def curves() -> dict[str, list[float]]:
    """Every curve by name: gradients to three digits, operations in units of 1e9 to four."""
    found: dict[str, list[float]] = {}
    for norm in ("pre", "post"):
        means = [
            sum(last_gradient(norm, depth, seed) for seed in range(SEEDS)) / SEEDS
            for depth in DEPTHS
        ]
        found[norm] = [float(f"{mean:.3g}") for mean in means]
    for name, cached in (("cached", True), ("anew", False)):
        found[name] = [float(f"{operations(length, cached) / 1e9:.4g}") for length in LENGTHS]
    return found


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Write the figure of ``curves()``."""
    import matplotlib as mpl

    style = {
        "svg.hashsalt": "depth_and_cost",  # ids that are the same each time
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


def _draw(found: dict[str, list[float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, label, colour in (
        ("post", "norm after the sum", "#d07a1f"),
        ("pre", "norm before the sublayer", "#12355b"),
    ):
        left.plot(DEPTHS, found[name], "o-", color=colour, linewidth=2, markersize=4, label=label)
    left.set(title="gradient of the last block, new model", xlabel="blocks")
    _logarithmic(left, DEPTHS)
    left.set_ylim(0.05, 2)
    left.legend(loc="lower left", frameon=False)
    for name, label, colour in (
        ("anew", "all tokens anew", "#d07a1f"),
        ("cached", "with caches", "#12355b"),
    ):
        right.plot(LENGTHS, found[name], "o-", color=colour, linewidth=2, markersize=4, label=label)
    right.set(title="operations for one more token, in 10⁹", xlabel="tokens held")
    _logarithmic(right, LENGTHS[::2])
    right.legend(loc="upper left", frameon=False)
    about = {"Description": json.dumps(found), "Date": None, "Creator": None}
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata=about)
    lines = [line.rstrip() for line in svg.getvalue().splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def _logarithmic(axes: Any, ticks: tuple[int, ...]) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()


if __name__ == "__main__":
    draw(curves(), FIGURE)
    print(FIGURE)
