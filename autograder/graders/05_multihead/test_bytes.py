"""kv_cache_bytes: the four kinds, and what it refuses."""

import pytest
from softmark.plugin import item

SIZES = {"batch": 3, "seq_len": 7, "num_heads": 8, "head_dim": 5, "bytes_per_value": 2}


@item("bytes.values")
def test_values(script, agree, draw):
    """Every number counts; those of other kinds are not looked at."""
    run = script()
    for _ in range(2):
        sizes = [int(n) for n in draw.rng.integers(2, 50, size=5)]
        run.call("kv_cache_bytes", "mha", *sizes)
        run.call("kv_cache_bytes", "mqa", *sizes)
        run.call("kv_cache_bytes", "gqa", *sizes, 2)
        run.call("kv_cache_bytes", "mla", *sizes, kv_rank=11)
    for kind in ("mha", "mqa", "gqa", "mla"):
        run.call("kv_cache_bytes", kind, **SIZES, num_kv_heads=4, kv_rank=9)
    agree(run)


@item("bytes.errors")
@pytest.mark.parametrize(
    "kind, more",
    [
        ("gqa", {}),
        ("mla", {}),
        ("gqa", {"kv_rank": 9}),
        ("mla", {"num_kv_heads": 4}),
        ("mha2", {"num_kv_heads": 4, "kv_rank": 9}),
    ],
)
def test_errors(script, agree, kind, more):
    """ValueError for an unknown kind, or where its number is missing."""
    run = script()
    run.raises("kv_cache_bytes", kind, **SIZES, **more)
    agree(run)
