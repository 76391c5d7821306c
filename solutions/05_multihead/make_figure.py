"""Make the handout's figure, assignments/05_multihead/costs.svg: why scores are scaled, and what caches take.

    python solutions/05_multihead/make_figure.py

Left, measured: how much the largest of 16 weights takes when queries and keys are random. Right, computed:
the size of the cache. Needs matplotlib and a few seconds; the file's description holds the curves.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
FIGURE = HERE.parents[1] / "assignments" / HERE.name / "costs.svg"
sys.path.insert(0, str(HERE))

import multihead  # noqa: E402

SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
KEYS, ROWS = 16, 4000
LAYERS, HEADS, HEAD_DIM, KV_HEADS, RANK = 32, 32, 128, 8, 512
LENGTHS = [0, 8192, 16384, 24576, 32768]
KINDS = {"mha": {}, "gqa": {"num_kv_heads": KV_HEADS}, "mla": {"kv_rank": RANK}, "mqa": {}}


def largest(d: int, scaled: bool) -> float:
    """The mean of the largest of KEYS weights, for random queries and keys of size d; two digits."""
    generator = torch.Generator().manual_seed(d)
    q = torch.randn(ROWS, 1, d, generator=generator, dtype=torch.float64)
    k = torch.randn(ROWS, KEYS, d, generator=generator, dtype=torch.float64)
    if not scaled:
        q = q * d**0.5  # taken back
    _, weights = multihead.scaled_dot_product_attention(q, k, k)
    return round(weights.amax(dim=-1).mean().item(), 2)


def gigabytes(kind: str, length: int) -> float:
    """The cache of all layers for one sequence, in units of 2 ** 30 bytes."""
    more = KINDS[kind]
    layer = multihead.kv_cache_bytes(kind, 1, length, HEADS, HEAD_DIM, 2, **more)
    return LAYERS * layer / 2**30


def curves() -> dict[str, list[float]]:
    """Every curve by name."""
    found = {name: [largest(d, name == "scaled") for d in SIZES] for name in ("scaled", "plain")}
    return found | {kind: [gigabytes(kind, length) for length in LENGTHS] for kind in KINDS}


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Write the figure of ``curves()``."""
    import matplotlib as mpl

    style = {
        "svg.hashsalt": "costs",  # ids that are the same each time
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


_LINES = {
    "plain": ("q · k", "#d07a1f", "-"),
    "scaled": ("q · k / √d", "#12355b", "-"),
    "mha": (f"MHA, {HEADS} heads", "#d07a1f", "-"),
    "gqa": (f"GQA, {KV_HEADS} heads", "#0b79a8", "--"),
    "mla": (f"latents of {RANK}", "#7a4b94", "-."),
    "mqa": ("MQA, one head", "#12355b", "-"),
}


def _draw(found: dict[str, list[float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.5), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2)
    left.set(xlabel="size of a head, d", ylabel=f"largest of {KEYS} weights", ylim=(0, 1))
    left.set_xscale("log", base=2)
    left.set_xticks(SIZES, [str(size) for size in SIZES])
    left.minorticks_off()
    right.set(xlabel="tokens", ylabel="cache of one sequence, GiB")
    right.set(xlim=(0, LENGTHS[-1]), ylim=(0, 17))
    right.set_xticks(LENGTHS, [f"{length // 1024} Ki" if length else "0" for length in LENGTHS])
    for axes, names, xs in (
        (left, ("plain", "scaled"), SIZES),
        (right, KINDS, LENGTHS),
    ):
        for name in names:
            label, colour, dashes = _LINES[name]
            axes.plot(xs, found[name], dashes, color=colour, linewidth=2.2, label=label)
        axes.legend(loc="upper left", frameon=False)
    about = {"Description": json.dumps(found), "Date": None, "Creator": None}
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata=about)
    lines = [line.rstrip() for line in svg.getvalue().splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    draw(curves(), FIGURE)
    print(FIGURE)
