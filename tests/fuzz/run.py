"""Fuzz one target with Atheris: ``python tests/fuzz/run.py wire -max_total_time=900 FOLDER ...``.

The first folder is where new inputs are kept, the others are only read. Ends at the first input that
breaks a rule, which libFuzzer writes to a file; ``tests/test_fuzz.py`` takes it as it is.
"""

from __future__ import annotations

import importlib
import random
import resource
import sys
import time
import warnings

import atheris

_MOST_MEMORY_KB = 256 << 10  # for one input; Atheris itself loses about 4 kB with each


def main() -> None:
    name = sys.argv.pop(1)
    # what has been imported cannot be instrumented any more
    for library in ("tarfile", "zipfile", "gzip", "tokenize"):
        sys.modules.pop(library, None)
    with atheris.instrument_imports(include=["softmark", "tarfile", "zipfile", "tokenize"]):
        target = importlib.import_module(f"fuzz_{name}")
    warnings.simplefilter("error")  # the grading process has nobody to read them

    def one(data: bytes) -> None:
        started, usual = time.process_time(), _peak_kb()
        target.check(data)
        seconds, taken = time.process_time() - started, _peak_kb() - usual
        assert seconds <= target.MOST_SECONDS, f"{seconds:.1f} s"
        assert taken <= _MOST_MEMORY_KB, f"{taken} kB"

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        dice = random.Random(seed)
        if dice.random() < 0.4:
            changed: bytes = atheris.Mutate(data, most)
            return changed
        return target.mutate(data, dice)[:most]

    atheris.Setup(sys.argv, one, custom_mutator=mutate)
    atheris.Fuzz()


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
