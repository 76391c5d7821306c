"""What is taken and kept, in bytes of float64, as the sizes grow."""

import numpy as np
from softmark.plugin import item
from softmark.script import Instance

NUMBER = 8  # bytes
SHORT, LONG = 256, 1024
MATRIX = 6  # times as much, at most: four times as many tokens, and half as much again
WIDE, D = 512, 2
FAR = 3072  # tokens, whose scores are 72 MiB
STRIP = 16 * D  # numbers for each further token, at most; a strip of booleans alone takes WIDE / 8


def peaks(trace, steps):
    """The most that each of the steps took."""
    found = {memory.step: memory.peak for memory in trace.memory}
    return [found[step] for step in steps]


def assert_no_matrix(trace, steps, what):
    """Four times as many tokens take no more than about four times as much, not sixteen times."""
    few, many = peaks(trace, steps)
    assert few, f"{what} makes no tensor."
    assert many <= MATRIX * few, (
        f"For four times as many tokens {what} takes {many:,} bytes at most, where it took {few:,}: "
        f"{many / few:.1f} times as much, where {MATRIX} times is allowed. Is there a matrix of all "
        "scores, or of a mask?"
    )


def assert_no_strip(trace, steps, tokens, what):
    """A further token takes some numbers for itself, none for each token of a block."""
    few, many = peaks(trace, steps)
    more = (many - few) / tokens
    assert more <= STRIP * NUMBER, (
        f"{what}: each further one takes {more:.0f} bytes, beside a block of {WIDE} of the others. "
        f"With d = {D}, {STRIP * NUMBER} is allowed. Are there scores, or a mask, of one whole block "
        "with all of them?"
    )


@item("tiled.memory", requires="tiled.out", claim=True)
def test_no_matrix(script, student, reference, measured, draw):
    """From 256 tokens to 1024; then from outside, where no way of making arrays is overlooked."""
    run, far, steps = script(), script(), []
    run.measure_memory()
    for T in (SHORT, LONG):
        steps.append(len(run.steps))
        run.call("tiled_attention", *(draw(1, 1, T, 4) for _ in range(3)), False, 128, 128)
    trace = student(run)
    assert_no_matrix(trace, steps, "tiled_attention")
    far.measure_memory()
    far.call("tiled_attention", *(draw(1, 1, FAR, 4) for _ in range(3)), False, 256, 256)
    grown, most = student(far).resident, FAR * FAR * NUMBER // 2
    assert grown is None or grown <= most, (
        f"With {FAR} tokens tiled_attention takes {grown:,} bytes of memory, as the system counts it; "
        f"{most:,} are allowed. Is there a matrix of all scores that is no tensor of PyTorch's?"
    )
    own, due = (peaks(each, steps)[-1] for each in (trace, reference(run)))
    measured(f"memory for {LONG} tokens", own / due)


def long_sides(draw):
    """Few and many keys beside one block of queries, then the other way round: sizes and blocks."""
    for many_keys in (True, False):
        for T in (128, 512):
            Tq, Tk = (WIDE, T) if many_keys else (T, WIDE)
            blocks = (WIDE, 64) if many_keys else (64, WIDE)
            yield (draw(1, 1, Tq, D), draw(1, 1, Tk, D), draw(1, 1, Tk, D)), blocks


@item("tiled.strips", requires=("tiled.out", "tiled.memory"), claim=True)
def test_no_strip(script, student, draw):
    """One block of queries with many keys, and one block of keys with many queries."""
    run, steps = script(), []
    run.measure_memory()
    for given, blocks in long_sides(draw):
        steps.append(len(run.steps))
        run.call("tiled_attention", *given, True, *blocks)
    trace = student(run)
    assert_no_strip(trace, steps[:2], 384, "Of the keys")
    assert_no_strip(trace, steps[2:], 384, "Of the queries")


@item("backward.memory", requires=("backward.dv", "backward.dq", "backward.dk"), claim=True)
def test_no_matrix_on_the_way_back(script, student, draw):
    """The same for the gradients."""
    run, steps = script(), []
    run.no_grad()
    run.measure_memory()
    for given, blocks in long_sides(draw):
        steps.append(len(run.steps))
        q = given[0]
        of_out = draw(*q.shape), draw(*q.shape[:3])
        run.call("tiled_attention_backward", draw(*q.shape), *given, *of_out, True, *blocks)
    trace = student(run)
    assert_no_strip(trace, steps[:2], 384, "Of the keys")
    assert_no_strip(trace, steps[2:], 384, "Of the queries")


@item(
    "function.saved",
    requires=("function.out", "function.gradients", "backward.memory"),
    claim=True,
)
def test_what_is_kept_for_the_way_back(script, student, draw):
    """From 128 tokens to 512; and what the way back takes."""
    run, steps = script(), []
    made = run.new("TiledAttention")
    run.measure_memory()
    for T in (128, 512):
        given = [run.tensor(name, draw(1, 1, T, 4)) for name in "qkv"]
        steps.append(len(run.steps))
        out = made.apply(*given, False, 128, 128)
        run.backward((out, draw(1, 1, T, 4)))
    trace = student(run)
    left = {memory.step: memory.left for memory in trace.memory}
    few, many = (left[step] for step in steps)
    assert many <= MATRIX * few, (
        f"For four times as many tokens TiledAttention keeps {many:,} bytes, out counted, where it kept "
        f"{few:,}: {many / few:.1f} times as much, where {MATRIX} times is allowed. Is a matrix kept?"
    )
    assert_no_matrix(trace, [step + 1 for step in steps], "TiledAttention.backward")


@item("decode.memory", requires=("decode.out", "decode.lengths"), claim=True)
def test_no_copy_of_a_cache(script, student, draw):
    """Caches that are whole, and caches that are the front of longer ones."""
    heads, shared, L, d = 4, 2, 2048, 32
    run, steps = script(), []
    longer = draw(1, shared, L + 64, d)
    whole = run.convert(longer[:, :, :L].copy(), "float64")
    front = Instance(run, "Tensor", run.convert(longer, "float64")).narrow(2, 0, L)
    run.measure_memory()
    for cache in (whole, front):
        steps.append(len(run.steps))
        run.call("decode_attention", draw(1, heads, 1, d), cache, cache, np.array([L]))
    size = shared * L * d * NUMBER
    for peak, which in zip(peaks(student(run), steps), ("", " cut from a longer one"), strict=True):
        assert peak <= 0.75 * size, (
            f"A step takes {peak:,} bytes where one cache{which} has {size:,}. Three quarters of that "
            "are allowed: is a cache copied, or are its heads repeated?"
        )
