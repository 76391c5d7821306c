"""Longer contexts: interpolation, the NTK-aware base, and YaRN."""

import re

import numpy as np
from softmark.plugin import item


@item("interpolate.positions")
def test_interpolation(script, agree, draw):
    """Integers and floats of any dtype, by whole and by broken factors."""
    run = script()
    run.call("interpolate_positions", np.arange(7), 4)
    run.call("interpolate_positions", np.arange(5) + 100, 2.5)
    run.call("interpolate_positions", draw.rng.uniform(0, 99, size=4), 8.0)
    run.call("interpolate_positions", np.arange(6, dtype=np.float32), 3)
    agree(run)


@item("ntk.base")
def test_ntk(script, agree, draw):
    """base · factor^(d / (d - 2))."""
    run = script()
    for base, d, factor in ((10000.0, 64, 4.0), (500.0, 4, 2.0), (10000.0, 128, 1.0)):
        run.call("ntk_base", base, d, factor)
    run.call("ntk_base", float(draw.rng.uniform(100, 900)), 6, float(draw.rng.uniform(2, 9)))
    agree(run)


@item("ntk.base")
def test_ntk_of_one_pair(script, student):
    """With one pair there is no slowest one beside the fastest."""
    run = script()
    run.raises("ntk_base", 10000.0, 2, 4.0)
    said = student(run).raised.message
    assert re.search(r"\bhead_dim\b", said), "The ValueError must name head_dim."


@item("yarn.frequencies")
def test_yarn(script, agree):
    """A ramp within the pairs, at several sizes."""
    run = script()
    run.call("yarn_inv_freq", 64, 10000.0, 4.0, 2048)
    run.call("yarn_inv_freq", 128, 500000.0, 8.0, 8192)
    run.call("yarn_inv_freq", 48, 1000.0, 2.5, 700, beta_fast=20, beta_slow=2)
    run.call("yarn_inv_freq", 32, 10000.0, 16.0, 4096, 24, 1.5)
    agree(run)


# head_dim, base, factor, original_len, beta_fast, beta_slow
EDGES = [
    (16, 100.0, 4.0, 64, 32, 1),  # low is 0
    (8, 10.0, 4.0, 10000, 1000, 1),  # high is d - 1
    (18, 10000.0, 4.0, 6, 32, 1),  # both are 0
    (8, 10.0, 4.0, 15080, 32, 1),  # both are d - 1
]


@item("yarn.edges", depends="yarn.frequencies")
def test_yarn_at_its_limits(script, agree):
    """Where the ramp begins before pair 0, ends behind d - 1, or has no width."""
    run = script()
    for given in EDGES:
        run.call("yarn_inv_freq", *given)
    agree(run)


@item("yarn.scale")
def test_scale(script, agree):
    """0.1 ln factor + 1, and 1.0 where nothing is stretched."""
    run = script()
    for factor in (4.0, 16.0, 1.5, 1.0, 0.5):
        run.call("yarn_attention_scale", factor)
    agree(run)
