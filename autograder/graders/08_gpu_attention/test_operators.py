"""What is run: the number of operators, and the floating-point operations of products."""

from dataclasses import replace

import numpy as np
from softmark.cost import flops, operators
from softmark.plugin import Unclear, item


def of_step(trace, step):
    """The Trace with the operators of one step alone."""
    return replace(trace, operators=tuple(each for each in trace.operators if each.step == step))


def counted(run, out, floor, student, reference):
    """The floating-point operations of the last step, which cannot be fewer than ``floor``."""
    trace = student(run)
    assert np.allclose(trace[out], reference(run)[out], 1e-9, 1e-11), (
        "out is not right here either."
    )
    found = flops(of_step(trace, len(run.steps) - 1))
    if found < floor:
        raise Unclear(
            f"It runs {found:,} floating-point operations where no fewer than {floor:,} do."
        )
    return found


@item("batched.operators", requires="batched.out", claim=True)
def test_operators_do_not_grow(script, student, draw):
    """Samples, heads and tokens are axes of tensors: no more of them takes more operators."""
    run, done = script(), []
    run.count_operators()
    sizes = {"": (2, 2, 3, 4), "samples": (7, 2, 3, 4), "heads": (2, 8, 3, 4)}
    sizes |= {"queries": (2, 2, 9, 4), "keys": (2, 2, 3, 12)}
    for N, h, Tq, Tk in sizes.values():
        for causal in (False, True):
            done.append(len(run.steps))
            run.call("batched_attention", draw(N, h, Tq, 5), *draw(2, N, h, Tk, 5), causal)
    trace = student(run)
    found = [operators(of_step(trace, step)) for step in done]
    for number, what in enumerate(sizes):
        for few, many in zip(found[:2], found[2 * number :][:2], strict=True):
            assert many <= few, (
                f"With more {what} it runs {many} operators where it ran {few}: it should be no more. "
                f"Is there a loop over {what}?"
            )


@item("tiled.once", requires="tiled.out", claim=True)
def test_every_score_is_computed_once(script, student, reference, draw):
    """Two products for each tile: its scores, and the sum of its values."""
    N, h, Tq, Tk, d = 2, 1, 32, 48, 8
    run = script()
    run.count_operators()
    out, _ = run.call("tiled_attention", draw(N, h, Tq, d), *draw(2, N, h, Tk, d), False, 16, 16)
    floor = 4 * N * h * Tq * Tk * d
    found = counted(run, out, floor, student, reference)
    assert found <= 1.4 * floor, (
        f"Its products take {found:,} floating-point operations. Scores and values once for every tile "
        f"take {floor:,}, and 1.4 times that is allowed: are scores computed again?"
    )


@item("varlen.flops", requires="varlen.out", claim=True)
def test_nothing_between_sequences(script, student, reference, draw):
    """Four sequences of one length, so that padding them, to whole blocks too, costs nothing."""
    N, T, h, d = 4, 64, 1, 2
    run = script()
    run.count_operators()
    out = run.call(
        "varlen_attention", *draw(3, N * T, h, d), np.arange(0, N * T + 1, T, dtype=np.int32)
    )
    floor = 4 * N * h * T * T * d
    found = counted(run, out, floor, student, reference)
    assert found <= 2 * floor, (
        f"Its products take {found:,} floating-point operations for {N} sequences of {T} tokens. Within "
        f"each of them they take {floor:,}, and twice that is allowed: are there scores between tokens "
        "of different sequences?"
    )
