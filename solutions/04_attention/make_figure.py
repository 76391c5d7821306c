"""Make the handout's figure, assignments/04_attention/reversing.svg: with attention and without.

    python solutions/04_attention/make_figure.py

Models of one size learn to write short sequences backwards; then the share of right tokens is measured
for every source length. Needs matplotlib and a few minutes; the file's description holds the curves.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import torch
from torch.nn import functional as F  # noqa: N812

HERE = Path(__file__).resolve().parent
FIGURE = HERE.parents[1] / "assignments" / HERE.name / "reversing.svg"
sys.path.insert(0, str(HERE))

import attention  # noqa: E402

BOS, EOS, SYMBOLS = 0, 1, 8
V = 2 + SYMBOLS
E, H = 16, 48
LONGEST, LAST = 12, 20  # source lengths: up to here in training, and up to here measured
BATCH, STEPS = 64, 1000
DECODERS = {
    "luong": "LuongDecoder",
    "bahdanau": "BahdanauDecoder",
    "bottleneck": "BottleneckDecoder",
}


def batch(
    lengths: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random sources (N, S), the targets bos, source backwards, eos, (N, S + 2), and which are real."""
    N, S = len(lengths), int(lengths.max())
    src = torch.randint(2, V, (N, S), generator=generator)
    tgt = torch.full((N, S + 2), EOS)
    tgt[:, 0] = BOS
    for n, length in enumerate(lengths.tolist()):
        tgt[n, 1 : length + 1] = src[n, :length].flip(0)
    return src, tgt, torch.arange(S + 1) < lengths[:, None] + 1


def trained(name: str) -> attention.Seq2Seq:
    """A model with this decoder, trained with teacher forcing."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = attention.Seq2Seq(
        attention.Encoder(V, E, H), getattr(attention, DECODERS[name])(V, E, H)
    )
    optimizer = torch.optim.Adam(model.parameters(), 4e-3)
    for _ in range(STEPS):
        lengths = torch.randint(1, LONGEST + 1, (BATCH,), generator=generator)
        src, tgt, real = batch(lengths, generator)
        logits = model(src, lengths, tgt)
        loss = F.cross_entropy(logits[real], tgt[:, 1:][real])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


def accuracy(model: attention.Seq2Seq, length: int) -> float:
    """The share of right tokens that greedy decoding writes for 200 sources of one length."""
    lengths = torch.full((200,), length)
    src, tgt, _ = batch(lengths, torch.Generator().manual_seed(2))
    found = attention.greedy_decode(model, src, lengths, BOS, EOS, length + 1)
    right = sum(
        a == b
        for tokens, due in zip(found, tgt[:, 1:].tolist(), strict=True)
        for a, b in zip(tokens, due, strict=False)
    )
    return right / (200 * (length + 1))


def curves() -> dict[str, list[float]]:
    """Every curve by name: the accuracy for each length from 1 on, to two digits."""
    models = {name: trained(name) for name in DECODERS}
    return {
        name: [round(accuracy(model, length), 2) for length in range(1, LAST + 1)]
        for name, model in models.items()
    }


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Write the figure of ``curves()``."""
    import matplotlib as mpl

    style = {
        "svg.hashsalt": "reversing",  # ids that are the same each time
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
    "luong": ("Luong attention", "#12355b", "-"),
    "bahdanau": ("Bahdanau attention", "#0b79a8", "--"),
    "bottleneck": ("no attention", "#d07a1f", "-"),
}


def _draw(found: dict[str, list[float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.8), facecolor="white", layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel="source length", ylabel="share of right tokens", ylim=(0, 1.05), xlim=(1, LAST))
    axes.set_xticks(range(2, LAST + 1, 2))
    axes.axvline(LONGEST + 0.5, color="black", linewidth=0.8)
    axes.text(LONGEST + 0.7, 1.01, "longer than in training", va="center")
    for name, (label, colour, dashes) in _LINES.items():
        lengths = range(1, len(found[name]) + 1)
        axes.plot(lengths, found[name], dashes, color=colour, linewidth=2.2, label=label)
    axes.legend(loc="lower left", frameon=False)
    about = {"Description": json.dumps(found), "Date": None, "Creator": None}
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata=about)
    lines = [line.rstrip() for line in svg.getvalue().splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    draw(curves(), FIGURE)
    print(FIGURE)
