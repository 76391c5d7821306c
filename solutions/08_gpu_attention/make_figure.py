"""Make the handout's figure, assignments/08_gpu_attention/bytes.svg: bytes that attention takes and moves.

    python solutions/08_gpu_attention/make_figure.py

Left, measured: the most memory that the allocator gives out at a time, beside the inputs. Right, computed:
the roof of a GPU and where attention stands under it. Needs matplotlib and a few seconds; the file's
description holds the curves.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

HERE = Path(__file__).resolve().parent
FIGURE = HERE.parents[1] / "assignments" / HERE.name / "bytes.svg"
sys.path.insert(0, str(HERE))

import gpu_attention  # noqa: E402

LENGTHS = [128, 256, 512, 1024, 2048]
D, BLOCK = 64, 128
PEAK, BANDWIDTH = 312.0, 2.0  # 10 ** 12 operations, and bytes, a second: an A100 in bfloat16
BYTES = 2  # of a number in bfloat16
HEAD_T, HEAD_D = 4096, 64  # of the handout's head
GROUP = 4  # query heads for a head of keys


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes that are allocated at one time while a function runs, on the CPU."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        call()
    events = [e for e in watched.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def measured(name: str, length: int) -> float:
    """In MiB, for one head in float64; three digits."""
    generator = torch.Generator().manual_seed(length)
    dout, q, k, v = (
        torch.randn(1, 1, length, D, generator=generator, dtype=torch.float64) for _ in range(4)
    )
    with torch.no_grad():
        if name == "stored":
            found = peak_bytes(lambda: gpu_attention.batched_attention(q, k, v))
        elif name == "forward":
            found = peak_bytes(lambda: gpu_attention.tiled_attention(q, k, v, False, BLOCK, BLOCK))
        else:
            given = dout, q, k, v, *gpu_attention.tiled_attention(q, k, v)
            found = peak_bytes(
                lambda: gpu_attention.tiled_attention_backward(*given, False, BLOCK, BLOCK)
            )
    mebibytes = found / 2**20
    return round(mebibytes, 2 - math.floor(math.log10(mebibytes)))


def intensities() -> dict[str, float]:
    """Operations a byte of attention in bfloat16."""
    operations = 4 * HEAD_T**2 * HEAD_D
    scores, once = 4 * HEAD_T**2 * BYTES, 4 * HEAD_T * HEAD_D * BYTES
    return {
        "decoding": 2 / BYTES,
        f"decoding, {GROUP} heads share": 2 * GROUP / BYTES,
        "scores stored": round(operations / (scores + once), 1),
        "blocks of 64": 2 * 64 / BYTES,
        "of 128": 2 * 128 / BYTES,
        "read once": operations / once,
    }


def curves() -> dict[str, list[float] | dict[str, float]]:
    """Every curve by name, and the points under the roof."""
    found = {
        n: [measured(n, length) for length in LENGTHS] for n in ("stored", "backward", "forward")
    }
    return {**found, "intensity": intensities()}


def draw(found: dict[str, list[float] | dict[str, float]], path: Path) -> None:
    """Write the figure of ``curves()``."""
    import matplotlib as mpl

    style = {
        "svg.hashsalt": "bytes",  # ids that are the same each time
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
    "stored": ("scores stored", "#d07a1f", "-"),
    "backward": (f"blocks of {BLOCK}, backward", "#0b79a8", "--"),
    "forward": (f"blocks of {BLOCK}, forward", "#12355b", "-"),
}


def _draw(found: dict[str, list[float] | dict[str, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.7), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    left.set(xlabel="tokens", ylabel="bytes beside the inputs, MiB")
    for name, (label, colour, dashes) in _LINES.items():
        left.plot(LENGTHS, found[name], dashes, color=colour, linewidth=2.2, label=label)
    left.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
    left.legend(loc="upper left", frameon=False)
    right.set(xlabel="operations a byte", ylabel="10¹² operations a second, at most")
    right.set_ylim(0.8, 800)
    ends = [0.5, PEAK / BANDWIDTH, 4096]
    right.plot(ends, [_roof(x) for x in ends], "-", color="#12355b", linewidth=2.2)
    points = found["intensity"]
    assert isinstance(points, dict)
    for name, x in points.items():
        right.plot([x], [_roof(x)], "o", color="#d07a1f")
        above = x > PEAK / BANDWIDTH
        right.annotate(
            name,
            (x, _roof(x)),
            xytext=(12, 7) if above else (8, -5),
            textcoords="offset points",
            ha="right" if above else "left",
        )
    ticks = [1, 4, 16, 64, 256, 1024, 4096]
    right.set_xticks(ticks, [str(tick) for tick in ticks])
    for axes in (left, right):
        axes.minorticks_off()
    about = {"Description": json.dumps(found), "Date": None, "Creator": None}
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata=about)
    lines = [line.rstrip() for line in svg.getvalue().splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def _roof(intensity: float) -> float:
    """10 ** 12 operations a second, at most."""
    return min(PEAK, BANDWIDTH * intensity)


if __name__ == "__main__":
    draw(curves(), FIGURE)
    print(FIGURE)
