"""Ways in which students write attention, timed beside the reference as a submission is.

    python benchmarks/gpu_styles.py [--device cuda] [--minutes 2] [--launches 1] [--pairs 8]

Naive (a loop over samples and heads), batched, tiled with an online softmax, and PyTorch's own: forward,
and forward with backward, in float32 (TF32 off) and bfloat16. Times are ratios to the reference, by the
protocol of ``softmark.timing`` with fewer launches; peak memory is PyTorch's own count, in a process of
its own. The reference is topic 08's ``batched_attention`` where that is there, else the batched way.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from softmark import gpu
from softmark.clock import Clock
from softmark.isolation import tiers
from softmark.isolation.host import Caps, Zygote
from softmark.isolation.seccomp import build_filter
from softmark.script import Output, Script
from softmark.timing import Bound, Maker, Plan, Stopped, compare_with_itself, judge

ROOT = Path(__file__).resolve().parent.parent
TOPIC_08 = ROOT / "solutions/08_gpu_attention/gpu_attention.py"
CALLS = {"attend": (Output("out", "array", ("N", "h", "Tq", "d")),)}
DTYPES = ("float32", "bfloat16")
GATES = {"float32": 1e-4, "bfloat16": 0.1}  # wide: here it is about time
NO_BOUND = Bound(full=1e6, none=1e9)

NAIVE = """
import torch

def attend(q, k, v):
    rows = [[one(*each) for each in zip(*sample)] for sample in zip(q, k, v)]
    return torch.stack([torch.stack(heads) for heads in rows])

def one(q, k, v):
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v
"""
BATCHED = """
import torch

def attend(q, k, v):
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v
"""
TILED = """
import torch

BLOCK = 2048

def attend(q, k, v):
    return Tiled.apply(q, k, v)

class Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        scale = q.shape[-1] ** -0.5
        top = q.new_full((*q.shape[:-1], 1), float("-inf"), dtype=torch.float32)
        total = torch.zeros_like(top)
        out = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        for k_j, v_j in zip(k.split(BLOCK, -2), v.split(BLOCK, -2)):
            scores = (q @ k_j.mT).float() * scale
            above = torch.maximum(top, scores.amax(-1, keepdim=True))
            weights, fading = torch.exp(scores - above), torch.exp(top - above)
            total = total * fading + weights.sum(-1, keepdim=True)
            out = out * fading + (weights.to(v.dtype) @ v_j).float()
            top = above
        out, lse = (out / total).to(q.dtype), top + torch.log(total)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, lse = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        delta = (dout.float() * out.float()).sum(-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(q, dtype=torch.float32), torch.empty_like(k), torch.empty_like(v)
        for start in range(0, k.shape[-2], BLOCK):
            block = slice(start, start + BLOCK)
            k_j, v_j = k[..., block, :], v[..., block, :]
            weights = torch.exp((q @ k_j.mT).float() * scale - lse)
            dv[..., block, :] = weights.to(v.dtype).mT @ dout
            dscores = (weights * ((dout @ v_j.mT).float() - delta) * scale).to(q.dtype)
            dq += dscores @ k_j
            dk[..., block, :] = dscores.mT @ q
        return dq.to(q.dtype), dk, dv
"""
SDPA = """
import torch.nn.functional as F

def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)
"""


def styles() -> tuple[dict[str, str], str]:
    """Sources by name, and the name of the reference among them."""
    found = {"naive": NAIVE, "batched": BATCHED, "tiled": TILED, "PyTorch's own": SDPA}
    if not TOPIC_08.is_file():
        return found, "batched"
    source = TOPIC_08.read_text(encoding="utf-8")
    tiled = "def attend(q, k, v): return TiledAttention.apply(q, k, v, False, 1024, 2048)"
    given = {
        "08, batched_attention": f"{source}\n\nattend = batched_attention\n",
        "08, TiledAttention": f"{source}\n\n{tiled}\n",
    }
    return {**given, **found}, next(iter(given))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Queries (N, h, Tq, d), and keys and values (N, h, Tk, d).

    Many more keys than queries: the work grows with both, what has to be hashed and sent with Tq.
    """

    N: int
    h: int
    Tq: int
    Tk: int
    d: int


def sizes_for(device: str) -> Sizes:
    """What fills a GPU of 8 GiB, or one of more than 30; for the CPU, next to nothing."""
    if device != "cuda":
        return Sizes(1, 2, 256, 1024, 64)
    found = gpu.look()
    large = isinstance(found, gpu.Gpu) and found.memory_mb > 30_000
    return Sizes(2, 8, 1024, 65536 if large else 8192, 64)


def timed_script(sizes: Sizes, dtype: str, backward: bool) -> Script:
    """One call, and with ``backward`` the way back; of the gradients dq alone is hashed and sent."""
    run = Script(CALLS)
    query, key = [(sizes.N, sizes.h, T, sizes.d) for T in (sizes.Tq, sizes.Tk)]
    q = run.fresh("q", *query, dtype=dtype, gradient=backward)
    k, v = (run.fresh(name, *key, dtype=dtype, gradient=backward) for name in "kv")
    dout = run.fresh("dout", *query, dtype=dtype) if backward else None
    run.start_clock()
    out = run.call("attend", q, k, v)
    if dout is not None:
        run.backward((out, dout))
        run.gradient(q)
    return run


@contextlib.contextmanager
def open_zygote(device: str) -> Iterator[Zygote]:
    """A zygote for workers that are timed, at the strongest tier that this machine has."""
    level = tiers.reach()
    if device == "cuda":
        layers = [*level.layers, "proc", "cuda"]
        seccomp = build_filter(cuda=True) if level.seccomp else b""
    else:
        layers, seccomp = list(level.layers), level.seccomp
    caps = Caps(600, 4096, resident_mb=8192 if device == "cuda" else None)
    with Zygote(layers, ["numpy", "torch"], caps, seccomp) as zygote:
        yield zygote


@dataclass(frozen=True, slots=True)
class Track:
    """The reference and the harness for one Script, and how to bring others beside them."""

    clock: Clock
    reference: Maker
    harness: Maker

    @classmethod
    def on(cls, zygote: Zygote, script: Script, device: str, reference: str) -> Track:
        clock = Clock(zygote, script, device, seconds=60)
        made = clock.maker({"reference.py": reference}, "reference")
        shapes = clock.shapes(made)
        return cls(clock, made, clock.maker({"harness.py": ""}, "harness", shapes=shapes))

    def maker(self, source: str) -> Maker:
        return self.clock.maker({"style.py": source}, "style")


Case = tuple[str, bool]
"""A dtype, and whether there is a way back."""
CASES: Sequence[Case] = [(dtype, backward) for dtype in DTYPES for backward in (False, True)]


def ratios(
    zygote: Zygote, device: str, sizes: Sizes, plan: Plan, until: float
) -> Iterator[tuple[str, Case, str]]:
    """(style, case, what its cell says), the reference of each case first. What is not reached by
    ``until``, on ``time.monotonic``'s clock, says so."""
    sources, first = styles()
    rng = np.random.default_rng()
    for case in CASES:
        if time.monotonic() > until:
            yield from ((name, case, "not reached") for name in sources)
            continue
        track = Track.on(zygote, timed_script(sizes, *case), device, sources[first])
        quiet, alone = compare_with_itself(track.reference, track.harness, rng=rng, plan=plan)
        said = f"{alone * 1000:.1f} ms"
        if quiet.interval is not None:
            said += f", itself {_shown(quiet.interval.low)} to {_shown(quiet.interval.high)}"
        yield first, case, said
        for name, source in sources.items():
            if name == first:
                continue
            if time.monotonic() > until:
                yield name, case, "not reached"
                continue
            verdict = judge(
                track.maker(source),
                track.reference,
                track.harness,
                gate=GATES[case[0]],
                bound=NO_BOUND,
                rng=rng,
                plan=plan,
            )
            found = verdict.interval
            if found is None:
                yield name, case, verdict.message
            else:
                low, middle, high = map(_shown, (found.low, found.middle, found.high))
                yield name, case, f"{middle} ({low} to {high})"


def _shown(ratio: float) -> str:
    return f"{ratio:.3g}"


# ---- memory, in a process of its own ---------------------------------------------------------------


def peak_mb(source: str, sizes: Sizes, dtype: str, backward: bool) -> str:
    """MiB on the GPU at most during one call, inputs left out."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    names: dict[str, Any] = {"__name__": "style"}
    exec(compile(source, "style.py", "exec"), names)  # this project's own
    shapes = [(sizes.N, sizes.h, T, sizes.d) for T in (sizes.Tq, sizes.Tk, sizes.Tk)]
    inputs = [torch.randn(s, dtype=getattr(torch, dtype), device="cuda") for s in shapes]
    dout = torch.randn_like(inputs[0])
    for each in inputs:
        each.requires_grad_(backward)
    try:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        out = names["attend"](*inputs)
        if backward:
            out.backward(dout)
        torch.cuda.synchronize()
        return f"{(torch.cuda.max_memory_allocated() - before) / 2**20:,.0f}"
    except torch.cuda.OutOfMemoryError:
        return "out of memory"


def peaks(sizes: Sizes) -> Mapping[tuple[str, Case], str]:
    """MiB of every style and case."""
    spawn = multiprocessing.get_context("spawn")
    sources, _ = styles()
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        futures = {
            (name, case): pool.submit(peak_mb, source, sizes, *case)
            for name, source in sources.items()
            for case in CASES
        }
        return {key: future.result() for key, future in futures.items()}


# ---- the table ---------------------------------------------------------------------------------------


def table(cells: Mapping[tuple[str, Case], str], first: str) -> list[str]:
    """Rows in Markdown, a style each, a column a case."""
    heads = [f"{dtype}, {'there and back' if way else 'forward'}" for dtype, way in CASES]
    lines = [f"| {first} | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(CASES)}"]
    for name in dict.fromkeys(name for name, _ in cells):
        row = " | ".join(cells[name, case].replace("|", "/") for case in CASES)
        lines.append(f"| {name} | {row} |")
    return lines


def options_of(doc: str, minutes: float) -> argparse.ArgumentParser:
    """The options that these scripts share."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--pairs", type=int, default=8)
    return parser


def main() -> None:
    parser = options_of(__doc__ or "", minutes=2.0)
    parser.add_argument("--launches", type=int, default=1)
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    sizes, plan = sizes_for(options.device), Plan(options.launches, options.pairs, 2)
    cells: dict[tuple[str, Case], str] = {}
    with open_zygote(options.device) as zygote:
        for name, case, said in ratios(zygote, options.device, sizes, plan, until):
            print(f"{name}, {case}: {said}", file=sys.stderr, flush=True)
            cells[name, case] = said
    print(
        f"N = {sizes.N}, h = {sizes.h}, Tq = {sizes.Tq}, Tk = {sizes.Tk}, d = {sizes.d}; "
        f"{plan.launches} x {plan.pairs} pairs, harness taken off.\n"
    )
    print("\n".join(table(cells, "times the reference's time")))
    if options.device == "cuda":
        print("\nPeak memory of one call, without its inputs:\n")
        print("\n".join(table(peaks(sizes), "MiB")))


if __name__ == "__main__":
    try:
        main()
    except Stopped as error:
        sys.exit(f"the reference cannot be timed: {error}")
