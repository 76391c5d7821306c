"""scheduled_sampling: values of the three schedules, and what it refuses."""

import pytest
from softmark.plugin import item


@item("scheduled.values")
def test_values(script, agree, draw):
    """At the first step, on the way, far out, and where exp overflows."""
    run = script()
    rate = float(draw.rng.uniform(0.01, 0.05))
    for step in (0, 1, 7, 19, 1000):
        run.call("scheduled_sampling", step, "linear", rate)
        run.call("scheduled_sampling", step, "exponential", 1 - rate)
        run.call("scheduled_sampling", step, "inverse_sigmoid", 200 * rate)
    run.call("scheduled_sampling", 3, "exponential", 1.0)
    run.call("scheduled_sampling", 0, "linear", 1.0)
    run.call("scheduled_sampling", 2, "linear", 1.5)
    run.call("scheduled_sampling", 2, "inverse_sigmoid", 0.3)
    run.call("scheduled_sampling", 10**6, "inverse_sigmoid", 1.0)
    agree(run)


WRONG = [
    ("cosine", 0.5),
    ("linear", 0.0),
    ("linear", -0.1),
    ("exponential", 0.0),
    ("exponential", -0.5),
    ("exponential", 1.01),
    ("inverse_sigmoid", 0.0),
    ("inverse_sigmoid", -2.0),
]


@item("scheduled.errors")
@pytest.mark.parametrize("schedule, rate", WRONG)
def test_errors(script, agree, schedule, rate):
    """ValueError for an unknown schedule, and for a rate that gives no probability."""
    run = script()
    run.raises("scheduled_sampling", 3, schedule, rate)
    agree(run)


@item("scheduled.errors")
def test_legal_rates(script, agree):
    """What is at the edge of the range is no error."""
    run = script()
    run.call("scheduled_sampling", 1, "exponential", 1.0)
    run.call("scheduled_sampling", 0, "linear", 2.0)
    run.call("scheduled_sampling", 1, "inverse_sigmoid", 2.0)
    agree(run)
