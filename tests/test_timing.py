"""The clock that cannot be fooled, on CPU workers with submissions that try; and the verdicts."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("workers need Linux", allow_module_level=True)

from softmark import timing
from softmark.clock import Clock
from softmark.isolation import tiers
from softmark.isolation.host import Caps, Zygote
from softmark.script import Output, Script
from softmark.timing import Bound, Budget, Interval, Maker, Plan, Sample, Stopped

torch = pytest.importorskip("torch", reason="PyTorch is not installed here")

CALLS = {"attend": (Output("out", "array", ("N", "T", "d")),)}
RIGHT = "import torch\ndef attend(q, k): return torch.softmax(q @ k.mT, -1) @ k\n"
WIDE = Bound(full=1e6, none=1e9)  # these tests are not about how fast this machine is
FEW = Plan(launches=2, pairs=3, warm=1)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    level = tiers.reach()
    with Zygote(level.layers, ["numpy", "torch"], Caps(300, 512), level.seccomp) as zygote:
        yield zygote


def timed_script(backward: bool = False) -> Script:
    run = Script(CALLS)
    q, k = (run.fresh(name, 2, 300, 16, dtype="float64", gradient=backward) for name in "qk")
    dout = run.fresh("dout", 2, 300, 16, dtype="float64")
    run.start_clock()
    out = run.call("attend", q, k)
    if backward:
        run.backward((out, dout))
        run.gradient(q)
        run.gradient(k)
    return run


@dataclass
class Race:
    """Makers of workers for one Script on one zygote."""

    zygote: Zygote
    script: Script = field(default_factory=timed_script)

    @cached_property
    def clock(self) -> Clock:
        return Clock(self.zygote, self.script, "cpu", 20)

    def maker(self, source: str, **more: Any) -> Maker:
        return self.clock.maker({"a.py": source}, "a", **more)

    def judged(self, source: str, plan: Plan = FEW) -> timing.Verdict:
        reference = self.maker(RIGHT)
        shapes = self.clock.shapes(reference)
        harness = self.maker("", shapes=shapes)
        rng = np.random.default_rng(0)
        return timing.judge(
            self.maker(source), reference, harness, gate=1e-9, bound=WIDE, rng=rng, plan=plan
        )


@pytest.fixture
def race(zygote: Zygote) -> Race:
    return Race(zygote)


# ---- honest ones ---------------------------------------------------------------------------------


@pytest.mark.parametrize("backward", [False, True])
def test_the_reference_s_own_code_is_measured(zygote, backward) -> None:
    verdict = Race(zygote, timed_script(backward)).judged(RIGHT)
    assert verdict.status == "measured", verdict.message
    assert verdict.interval is not None and verdict.credit == 1.0
    assert verdict.interval.low <= verdict.interval.middle <= verdict.interval.high
    assert "times the reference's time" in verdict.message


def test_steps_before_the_clock_are_not_timed_and_those_after_it_are(race) -> None:
    setting_up = race.maker(f"import time\ntime.sleep(0.5)\n{RIGHT}")()
    assert min(setting_up.go(seed).seconds for seed in range(5)) < 0.4
    setting_up.close()
    inside = RIGHT.replace("return", "time.sleep(0.3); return")
    slow = race.maker(f"import time\n{inside}")()
    assert slow.go(1).seconds > 0.3
    slow.close()


def test_the_same_seed_gives_the_same_outputs_and_another_gives_others(race) -> None:
    first, second = race.maker(RIGHT)(), race.maker(RIGHT)()
    digests = [first.go(1).digest, second.go(1).digest, second.go(2).digest]
    assert digests[0] == digests[1] != digests[2]
    assert first.outputs()[0] == digests[0]
    first.close(), second.close()


def test_the_driver_is_asked_for_the_memory_of_the_worker_s_process(
    race, tmp_path, monkeypatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = race.maker(RIGHT)()
    try:
        for numbers, found in (([made._worker.pid], 77), ([1, os.getpid()], None)):
            lines = "".join(f"echo '{number}, 77'\n" for number in numbers)
            tool.write_text(f"#!/bin/sh\n{lines}")
            tool.chmod(0o755)
            assert made.held_mb() == found
    finally:
        made.close()


def test_bfloat16_comes_back_as_numbers(zygote) -> None:
    run = Script(CALLS)
    q, k = (run.fresh(name, 1, 4, 4, dtype="bfloat16") for name in "qk")
    run.start_clock()
    run.call("attend", q, k)
    clock = Clock(zygote, run, "cpu", 20)
    assert clock.shapes(clock.maker({"a.py": RIGHT}, "a")) == [("bfloat16", (1, 4, 4))]
    made = clock.maker({"a.py": RIGHT}, "a")()
    made.go(3)
    _, ((dtype, values),) = made.outputs()
    made.close()
    assert dtype == "bfloat16" and np.abs(values).max() < 10 and np.ptp(values) > 0


def test_what_is_kept_for_the_way_back_is_given_up_on_it(zygote) -> None:
    source = """
import torch
class Watched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q):
        ctx.save_for_backward(q + 0)
        return q + 0
    @staticmethod
    def backward(ctx, dout):
        return dout * ctx.saved_tensors[0]
def attend(q, k):
    return Watched.apply(q) + k
"""
    run = Script(CALLS)
    q, k = (run.fresh(name, 1, 4, 4, gradient=True) for name in "qk")
    run.start_clock()
    out = run.call("attend", q, k)
    run.backward((out, out))
    run.gradient(q)
    once = Race(zygote, run).maker(source)()
    once.go(1), once.go(2)
    once.close()
    run.backward((out, out))
    twice = Race(zygote, run).maker(source)()
    with pytest.raises(timing.Stopped, match="backward through the graph a second time"):
        twice.go(1)
    twice.close()


# ---- submissions that try to be fast -------------------------------------------------------------

CHEATS: Mapping[str, tuple[str, str]] = {
    "input_returned": ("return q", "too far from the right ones"),
    "constant": ("return torch.zeros_like(q)", "too far from the right ones"),
    "other_shape": ("return right(q, k)[:, :1]", "other shapes"),
    "other_dtype": ("return right(q, k).float()", "other shapes or dtypes"),
    "cached_by_function": (
        "kept.setdefault(0, right(q, k)); return kept[0]",
        "too far from the right ones",
    ),
    "cached_by_shape": (
        "kept.setdefault(q.shape, right(q, k)); return kept[q.shape]",
        "too far from the right ones",
    ),
    "cached_by_pointer": (
        "p = q.data_ptr() * 0; kept.setdefault(p, right(q, k)); return kept[p]",
        "too far from the right ones",
    ),
    "batch_and_skip": (
        "kept[0] = kept.get(0, -1) + 1\n"
        "    if kept[0] % 2 == 0: kept[1] = right(q, k)\n"
        "    return kept[1]",
        "too far from the right ones",
    ),
    "dtype_dropped": ("return right(q.float(), k.float()).double()", "too far from the right ones"),
    "work_left_to_a_thread": (
        "out = torch.empty_like(q)\n"
        "    def late():\n"
        "        time.sleep(0.05); out.copy_(right(q, k))\n"
        "    threading.Thread(target=late).start(); return out",
        "not what it had when its time was taken|too far from the right ones",
    ),
    "lazy_tensor": ("return Lazy(q)", "not a plain tensor"),
    "no_tensor": ("return q.tolist()", "not a tensor"),
    "hash_patched": (
        "hashlib.sha256 = lambda *a: None; return right(q, k)",
        "stops where its time is taken",
    ),
    "replies_before_the_work": (
        "import msgpack, struct\n"
        "    body = msgpack.packb([b'0' * 32, 0.0, 0])\n"
        "    os.write(3, struct.pack('<Q', len(body)) + body); return right(q, k)",
        "not what it had|not what the harness answers",
    ),
    "negative_memory": (
        "import msgpack, struct\n"
        "    body = msgpack.packb([b'0' * 32, 0.0, -1])\n"
        "    os.write(3, struct.pack('<Q', len(body)) + body); return right(q, k)",
        "not what the harness answers",
    ),
    "forged_frame": ("os.write(3, b'1' * 100); return right(q, k)", "not what the harness answers"),
    "ends": ("os._exit(0)", "its process ended"),
    "raises": ("raise ValueError('no')", "ValueError"),
}
SET_UP = """
import hashlib, os, threading, time
import torch

kept = {}


class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, of):
        return torch.Tensor._make_wrapper_subclass(cls, of.shape, dtype=of.dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def right(q, k): return torch.softmax(q @ k.mT, -1) @ k


"""


@pytest.mark.parametrize("name", CHEATS)
def test_who_does_not_do_the_work_in_time_fails(race, name) -> None:
    body, said = CHEATS[name]
    verdict = race.judged(f"{SET_UP}def attend(q, k):\n    {body}\n", Plan(1, 3, 1))
    assert verdict.status == "failed" and verdict.credit == 0

    assert re.search(said, verdict.message), verdict.message


PATCHES = {
    "time": "time.perf_counter = time.monotonic = time.time = lambda: 0.0",
    "torch_cuda": "torch.cuda.synchronize = torch.cuda.Event = lambda *a, **k: None",
    "sleepless_hash": "time.sleep = time.sleep",
}


@pytest.mark.parametrize("name", PATCHES)
def test_patched_clocks_change_nothing(race, name) -> None:
    source = f"{SET_UP}nap = time.sleep\n{PATCHES[name]}\n"
    made = race.maker(f"{source}def attend(q, k):\n    nap(0.2); return right(q, k)\n")()
    assert made.go(5).seconds > 0.2
    made.close()


def test_inputs_written_to_change_nothing_for_the_reference(race) -> None:
    body = "out = right(q, k); q.zero_(); k.zero_(); return out"
    verdict = race.judged(f"{SET_UP}def attend(q, k):\n    {body}\n")
    assert verdict.status == "measured"


def test_what_goes_on_in_the_background_is_stopped_while_others_run(race) -> None:
    body = """
count = [0]
def busy():
    while True:
        count[0] += 1; time.sleep(0.001)
threading.Thread(target=busy, daemon=True).start()
def attend(q, k): return q * 0 + count[0]
"""
    made = race.maker(SET_UP + body)()

    def counted() -> float:
        made.resume()
        made.go(1)
        ((_, values),) = made.outputs()[1]
        made.pause()
        return float(values.flat[0])

    counted()
    before = counted()
    time.sleep(1.0)
    after = counted()
    made.resume()
    time.sleep(1.0)
    running = counted()
    made.close()
    assert running - after > 4 * (after - before)


# ---- what is made of times -----------------------------------------------------------------------


def _steady() -> float:
    return 1.0


@dataclass
class Simulated:
    """Takes as long as it is told: ``seconds`` on the average, with noise, in a machine's mood."""

    seconds: float
    rng: np.random.Generator
    noise: float = 0.01
    claim: float = 0.0
    mood: Any = _steady
    peak: int = 0
    held: int | None = None
    runs: list[float] = field(default_factory=list)

    def go(self, seed: int) -> Sample:
        noise = math.exp(self.noise * self.rng.normal())
        self.runs.append(self.seconds * noise * self.mood())
        return Sample(self.runs[-1], b"same", self.claim, self.peak)

    def outputs(self) -> tuple[bytes, list[tuple[str, np.ndarray]]]:
        return b"same", [("float64", np.ones(3))]

    def held_mb(self) -> int | None:
        return self.held

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


def simulated(ratio: float, *, alone: float | None = None, **student: Any) -> timing.Verdict:
    rng = np.random.default_rng(3)
    makers = [
        lambda: Simulated(1.0 * ratio + 0.5, rng, **student),
        lambda: Simulated(1.5, rng),
        lambda: Simulated(0.5, rng),
    ]
    return timing.judge(*makers, gate=0.1, bound=Bound(2, 4), rng=rng, alone=alone)


@pytest.mark.parametrize(("ratio", "credit"), [(1.0, 1.0), (1.9, 1.0), (4.2, 0.0), (2.83, 0.5)])
def test_credit_by_the_ratio_without_the_harness(ratio, credit) -> None:
    verdict = simulated(ratio)
    assert verdict.status == "measured" and verdict.interval is not None
    assert verdict.interval.middle == pytest.approx(ratio, rel=0.02)
    assert verdict.credit == pytest.approx(credit, abs=0.03)


def test_credit_falls_without_a_step() -> None:
    bound = Bound(2, 4)
    earned = [bound.credit(ratio) for ratio in np.geomspace(1.5, 5, 1000)]
    assert earned[0] == 1.0 and earned[-1] == 0.0
    assert all(0 <= a - b < 0.002 for a, b in itertools.pairwise(earned))
    narrow, wide = Interval(1.9, 2.0, 2.1), Interval(1.5, 2.0, 2.6)
    assert narrow.low < narrow.judged < narrow.middle and wide.low < wide.judged < wide.middle


def test_the_interval_holds_the_ratio_and_narrows_with_more_pairs() -> None:
    rng = np.random.default_rng(5)
    held, widths = 0, {}
    for _ in range(200):
        for pairs in (6, 24):
            launches = 0.1 + 0.05 * rng.normal(size=(12, pairs)) + 0.01 * rng.normal(size=(12, 1))
            interval = timing.ratio_interval(launches, rng)
            widths.setdefault(pairs, []).append(math.log(interval.high / interval.low))
            held += pairs == 24 and interval.low <= math.exp(0.1) <= interval.high
    assert held > 175  # 95 % of 200, fewer for there being 12 launches only
    assert np.mean(widths[24]) < 0.75 * np.mean(widths[6])


def brief(ratio: float, seed: int, mood: Any = _steady) -> tuple[timing.Verdict, int]:
    """What is said of one that takes milliseconds, and in how many runs."""
    rng, runs = np.random.default_rng(seed), []

    def outliers() -> float:
        return rng.uniform(1.2, 2.0) if rng.random() < 0.02 else 1.0

    verdict = timing.judge(
        lambda: Simulated(
            0.01 * ratio + 0.005, rng, 0.03, mood=lambda: mood() * outliers(), runs=runs
        ),
        lambda: Simulated(0.015, rng, 0.03, mood=outliers),
        lambda: Simulated(0.005, rng, 0.03, mood=outliers),
        gate=0.1,
        bound=Bound(2, 4),
        rng=rng,
    )
    return verdict, len(runs)


@pytest.mark.parametrize("ratio", [1.9, 4, 8, 11])
def test_nothing_near_a_bound_is_stopped_early(ratio) -> None:
    for seed in range(20):
        verdict, runs = brief(ratio, seed)
        assert verdict.status == "measured" and runs == 5 * 14


def test_what_is_slow_beyond_doubt_is_stopped_early() -> None:
    for seed in range(20):
        verdict, runs = brief(50, seed)
        assert verdict.status == "failed" and verdict.credit == 0 and runs == Plan().warm + 3
        assert "more than 12 times the reference's time" in verdict.message


def test_one_run_among_the_first_that_is_not_slow_has_it_measured() -> None:
    turns = itertools.cycle([1, 1, 1, 1, 0.01, *[1] * 9])
    verdict, runs = brief(50, 0, lambda: next(turns))
    assert verdict.status == "measured" and runs == 5 * 14 and verdict.credit == 0


@pytest.mark.parametrize(("seconds", "status"), [(100.0, "failed"), (400.0, "measured")])
def test_what_is_lost_on_a_slow_one_has_an_end(seconds, status) -> None:
    """Every third run is hundreds of times too slow: by 58 s beyond what is allowed for."""
    rng, turns, budget = np.random.default_rng(0), itertools.cycle([1, 1, 70.0]), Budget(seconds)
    runs: list[float] = []

    def judged() -> timing.Verdict:
        return timing.judge(
            lambda: Simulated(1.0, rng, 0, mood=lambda: next(turns), runs=runs),
            lambda: Simulated(1.0, rng, 0),
            lambda: Simulated(0.1, rng, 0),
            gate=0.1,
            bound=Bound(2, 4),
            rng=rng,
            plan=Plan(2, 7, 2),
            budget=budget,
        )

    verdict = judged()
    assert verdict.status == status
    if status == "failed":
        assert f"more than {seconds:g} s" in verdict.message and len(runs) == 6
        runs.clear()
        assert judged().status == "failed" and len(runs) <= 3  # what is spent stays spent
    else:
        assert len(runs) == 18


def test_a_start_that_takes_long_is_charged_too(race) -> None:
    rng, budget = np.random.default_rng(0), Budget(0.2)
    reference = race.maker(RIGHT)
    shapes = Clock(race.zygote, race.script, "cpu", 20).shapes(reference)
    verdict = timing.judge(
        race.maker(f"import time\ntime.sleep(3)\n{RIGHT}"),
        reference,
        race.maker("", shapes=shapes),
        gate=1e-9,
        bound=WIDE,
        rng=rng,
        plan=Plan(1, 2, 1),
        budget=budget,
    )
    assert verdict.status == "failed" and "more than 0.2 s" in verdict.message


MB = 1 << 20


@pytest.mark.parametrize(
    ("student", "reference", "ratio", "said"),
    [
        ((300 * MB, 800), (200 * MB, 700), 1.5, "up to 300 MB by its own count (the reference 200"),
        # it tells of less than the driver sees: the driver's count is what is told of
        ((20 * MB, 2800), (200 * MB, 700), 4.0, "the driver counts 2800 MB (700 MB)"),
        ((0, 2800), (200 * MB, 700), 4.0, "up to 0 MB by its own count"),
        # it has given back what it used by the time the driver is asked
        ((900 * MB, 700), (200 * MB, 700), 4.5, "up to 900 MB"),
        ((300 * MB, None), (200 * MB, None), 1.5, "(the reference 200 MB)."),
        ((0, None), (0, None), None, ""),
    ],
)
def test_memory_is_told_by_the_count_that_makes_it_larger(student, reference, ratio, said) -> None:
    rng = np.random.default_rng(0)
    verdict = timing.judge(
        lambda: Simulated(1.5, rng, peak=student[0], held=student[1]),
        lambda: Simulated(1.5, rng, peak=reference[0], held=reference[1]),
        lambda: Simulated(0.5, rng),
        gate=0.1,
        bound=Bound(2, 4),
        rng=rng,
    )
    assert verdict.status == "measured" and verdict.credit == 1.0
    assert (verdict.memory.ratio if verdict.memory else None) == ratio
    assert said in verdict.message and ("GPU" in verdict.message) == bool(said)
    assert ("driver" in verdict.message) == (student[1] is not None)


def test_a_machine_in_two_moods_measures_the_same() -> None:
    rng = np.random.default_rng(1)
    state = {"slow": False}

    def mood() -> float:
        state["slow"] ^= rng.random() < 0.02
        return 1.15 if state["slow"] else 1.0

    verdict = simulated(1.5, mood=mood)
    assert verdict.interval is not None
    assert verdict.interval.middle == pytest.approx(1.5, rel=0.15)


def test_what_cannot_be_told_is_not_graded_or_looked_at_by_a_person() -> None:
    rng = np.random.default_rng(2)
    quick = [
        lambda: Simulated(1.02, rng),
        lambda: Simulated(1.01, rng),
        lambda: Simulated(1.0, rng),
    ]
    verdict = timing.judge(*quick, gate=1, bound=Bound(2, 4), rng=rng)
    assert verdict.status == "not_graded" and "hardly longer" in verdict.message
    assert simulated(1.0, alone=1.0).status == "measured"
    for alone in (0.9, 1.1):
        verdict = simulated(1.0, alone=alone)
        assert verdict.status == "invalid" and "A person" in verdict.message
    assert simulated(1.0, claim=1.0).status == "measured"
    assert simulated(1.0, claim=2.0).status == "invalid"


def test_the_reference_against_itself_tells_a_noisy_machine() -> None:
    rng = np.random.default_rng(4)
    quiet, alone = timing.compare_with_itself(
        lambda: Simulated(1.5, rng), lambda: Simulated(0.5, rng), rng=rng
    )
    assert quiet.status == "measured" and alone == pytest.approx(1.0, rel=0.02)
    noisy, _ = timing.compare_with_itself(
        lambda: Simulated(1.5, rng, noise=0.3), lambda: Simulated(0.5, rng), rng=rng
    )
    assert noisy.status == "not_graded" and "too noisy" in noisy.message


def test_a_worker_that_cannot_be_imported_fails_in_words(race) -> None:
    assert race.judged("def attend(:").status == "failed"
    with pytest.raises(Stopped, match="name 'nothing' is not defined"):
        race.maker("nothing")()


@pytest.mark.parametrize("answer", ["1 << 30", "1 << 60", "2 ** 64 - 1", "'x'", "None", "b''"])
def test_forged_outputs_are_the_submission_s_fault_and_cost_nothing(race, answer) -> None:
    body = f"""
def forge(*_):
    import msgpack, struct
    parts = msgpack.packb([["float64", [2, 2], {answer}]])
    os.write(3, struct.pack('<Q', len(parts)) + parts)
    os._exit(0)
def attend(q, k):
    import gc
    out = right(q, k)
    for each in gc.get_objects():
        if type(each).__name__ == 'Clocked': each.outputs = forge
    return out
"""
    verdict = race.judged(SET_UP + body, Plan(1, 2, 1))
    assert verdict.status == "failed" and verdict.forged, verdict


def test_what_stops_the_reference_is_not_the_submission_s_fault(race) -> None:
    reference = race.maker(RIGHT)
    shapes = Clock(race.zygote, race.script, "cpu", 20).shapes(reference)
    harness = race.maker("", shapes=shapes)
    broken = race.maker("def attend(q, k): raise ValueError")
    rng = np.random.default_rng(0)
    verdict = timing.judge(
        reference, broken, harness, gate=1e-9, bound=WIDE, rng=rng, plan=Plan(1, 2, 1)
    )
    assert verdict.status == "not_graded" and verdict.message.endswith("could not be timed.")


def test_a_clock_needs_something_to_check(zygote) -> None:
    run = Script(CALLS)
    run.fresh("q", 2)
    run.start_clock()
    with pytest.raises(ValueError, match="nothing to check"):
        Clock(zygote, run, "cpu", 20)


# ---- recurrences and modules ---------------------------------------------------------------------

SCALED: Mapping[str, tuple[Output, ...]] = {
    "Scaled": (),
    "Scaled.forward": (Output("y", "array", ("N", "M")),),
}
MODULE = """
import torch
class Scaled(torch.nn.Module):
    def __init__(self, K, M):
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.zeros(K, M))
        self.bias = torch.nn.Parameter(torch.zeros(M))
    def forward(self, x):
        return x @ self.matrix + self.bias
"""


def module_script(weigh: bool, gradients: bool = True, dtype: str = "float32") -> Script:
    """A module that is made once, with parameters that are made for each run."""
    run = Script(SCALED)
    made = run.new("Scaled", 600, 500)
    run.convert(made, dtype)
    params = {
        "matrix": run.fresh("matrix", 600, 500, dtype=dtype, scale=0.04),
        "bias": run.fresh("bias", 500, dtype=dtype),
    }
    x = run.fresh("x", 700, 600, dtype=dtype)
    run.start_clock()
    run.assign(made, params)
    outputs = [made.forward(x)]
    if gradients:
        run.backward((outputs[0], outputs[0]))
        outputs.append(run.gradients(made))
    if weigh:
        for output in outputs:
            run.weigh(output)
    return run


def test_a_module_is_timed_and_every_run_has_its_own_gradients(zygote) -> None:
    race = Race(zygote, module_script(weigh=False))
    made = race.maker(MODULE)()
    digests = [made.go(seed).digest for seed in (1, 2, 1)]
    assert digests[0] == digests[2] != digests[1]
    _, outputs = made.outputs()
    made.close()
    shapes = [values.shape for _, values in outputs]
    assert shapes == [(700, 500), (500,), (600, 500)]  # entries of a dict by name: bias, matrix
    y, bias, _ = (values for _, values in outputs)
    np.testing.assert_allclose(bias, y.sum(axis=0), rtol=1e-3, atol=1e-2)
    assert 0.9 < y.std() < 1.9  # sqrt(600) · 0.04 and a bias of 1


def test_what_is_weighed_is_sent_as_one_number_a_row(zygote) -> None:
    whole, weighed = (Race(zygote, module_script(weigh)) for weigh in (False, True))
    sent = []
    for race in (whole, weighed):
        made = race.maker(MODULE)()
        made.go(5)
        sent.append([values.astype(float) for _, values in made.outputs()[1]])
        made.close()
    (y, bias, matrix), (by_y, same, by_matrix) = sent
    np.testing.assert_array_equal(bias, same)
    weigh = hashlib.blake2b((5).to_bytes(8), key=weighed.clock._secret, digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(weigh))
    for array, numbers in ((y, by_y), (matrix, by_matrix)):  # relu(row · r) · s
        first, second = torch.randn(2, 500, generator=generator).numpy()
        due = np.maximum(array * first, 0) @ second
        np.testing.assert_allclose(numbers, due, rtol=1e-3, atol=1e-3 * due.std())


# Waits for the vector, and puts the product with it in the place of that of the matrices.
WAITS = MODULE.replace(
    "return x @ self.matrix",
    """multiply = torch.Tensor.__matmul__
        def late(rows, vector):
            if vector.dim() > 1 or rows.shape != (700, 500):
                return multiply(rows, vector)
            return multiply(x, multiply(self.matrix, vector)) + self.bias @ vector
        torch.Tensor.__matmul__ = late
        return x.new_ones(700, 500)""",
)
# Takes the seed of its run from the harness and gives rows that are right in one product alone.
FORESEES = MODULE.replace(
    "return x @ self.matrix",
    """frame = sys._getframe()
        while "generator" not in frame.f_locals:
            frame = frame.f_back
        made = torch.Generator().manual_seed(frame.f_locals["seed"])
        made.set_state(frame.f_locals["generator"].get_state())
        vector = torch.randn(500, generator=made, dtype=x.dtype)
        due = x @ (self.matrix @ vector) + self.bias @ vector
        return due[:, None] * vector / (vector @ vector) - self.bias""",
)


@pytest.mark.parametrize("source", [FORESEES, WAITS])
def test_what_is_weighed_cannot_be_computed_alone(zygote, source) -> None:
    race = Race(zygote, module_script(weigh=True, gradients=False))
    right, cheats = race.maker(MODULE)(), race.maker(f"import sys\n{source}")()
    for made in (right, cheats):
        made.go(3)
    (_, due), (_, sent) = right.outputs()[1][0], cheats.outputs()[1][0]
    right.close()
    cheats.close()
    assert np.linalg.norm(sent - due) > 0.5 * np.linalg.norm(due)


WRONG_MODULES = {
    "one_wrong_number": (
        "return",
        "wrong = x.new_zeros(700, 500); wrong[3, 4] = 1e5; return wrong +",
    ),
    "constant": ("return x @ self.matrix", "return 0 * (x @ self.matrix)"),
    "no_gradient_for_the_matrix": ("@ self.matrix", "@ self.matrix.detach()"),
    "gradients_kept_from_run_to_run": (
        "return",
        "self.kept = getattr(self, 'kept', 0) + self.bias.detach(); return self.kept +",
    ),
}


@pytest.mark.parametrize("wrong", WRONG_MODULES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_weighed_is_checked(zygote, wrong, dtype) -> None:
    race = Race(zygote, module_script(weigh=True, dtype=dtype))
    reference = race.maker(MODULE)
    shapes = race.clock.shapes(reference)
    harness = race.maker("", shapes=shapes)
    verdicts = [
        timing.judge(
            race.maker(source),
            reference,
            harness,
            gate=6e-2,
            bound=WIDE,
            rng=np.random.default_rng(0),
            plan=Plan(1, 2, 1),
        )
        for source in (MODULE, MODULE.replace(*WRONG_MODULES[wrong]))
    ]
    assert verdicts[0].status != "failed", verdicts[0]
    said = "no gradient reaches matrix" if wrong.startswith("no_grad") else "too far from"
    assert verdicts[1].status == "failed" and said in verdicts[1].message, verdicts[1]
