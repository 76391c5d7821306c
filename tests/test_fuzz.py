"""What the fuzzers of tests/fuzz have kept, and a few hundred inputs made anew, break no rule.

The inputs go through the functions that the fuzzers call; Atheris is not needed here.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from fuzz import fuzz_intake, fuzz_wire

CORPUS = Path(__file__).parent / "fuzz" / "corpus"
WIRE, INTAKE = (sorted((CORPUS / name).iterdir()) for name in ("wire", "intake"))


@pytest.mark.parametrize("path", WIRE, ids=lambda path: path.name)
def test_what_the_wire_fuzzer_kept(path: Path) -> None:
    end = fuzz_wire.check(path.read_bytes())
    assert end == "refused" or not path.name.startswith("refused")


@pytest.mark.parametrize("path", INTAKE, ids=lambda path: path.name)
def test_what_the_intake_fuzzer_kept(path: Path) -> None:
    fuzz_intake.check(path.read_bytes())


def test_the_corpus_is_small() -> None:
    assert 20 <= len(WIRE + INTAKE) <= 60
    assert sum(path.stat().st_size for path in WIRE + INTAKE) <= 200_000


def test_forged_answers_end_as_traces_or_bad_frames() -> None:
    ends = Counter(fuzz_wire.check(data) for data in fuzz_wire.generate(600, seed=1))
    assert ends["refused"] > 100 and ends["differs"] > 50 and ends["agrees"], ends


def test_honest_answers_are_taken() -> None:
    """Each case in turn: right, wrong, with an error, with both; the last is no answer."""
    ends = [fuzz_wire.check(data) for data in fuzz_wire.seeds()]
    assert [end == "refused" for end in ends] == [False, False, False, False, True] * 4
    assert ends[0] == ends[5] == ends[15] == "agrees"
    assert ends[1] == ends[6] == ends[16] == "differs"


def test_broken_files_end_as_submissions() -> None:
    ends = Counter(fuzz_intake.check(data) for data in fuzz_intake.generate(400, seed=1))
    assert min(ends[end] for end in ("ready", "missing", "unreadable")) >= 3, ends


@pytest.mark.parametrize("target", [fuzz_wire, fuzz_intake])
def test_any_bytes_at_all(target: ModuleType) -> None:
    dice = random.Random(1)
    for size in (0, 1, 2, 7, 30, 500):
        for _ in range(10):
            target.check(dice.randbytes(size))
