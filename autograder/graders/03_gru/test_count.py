"""count_parameters: every kind, and what is no kind."""

import pytest
from softmark.plugin import item

KINDS = ("rnn", "lstm", "gru", "gru_reset_after")


@item("count.values")
def test_every_kind(script, agree):
    """The exact number, for sizes of which none is another's multiple, and for 1."""
    run = script()
    for D, H in [(5, 4), (3, 7), (1, 1), (1, 9), (11, 1), (300, 512)]:
        for kind in KINDS:
            run.call("count_parameters", kind, D, H)
    agree(run)


@item("count.errors")
@pytest.mark.parametrize("kind", ["transformer", "GRU", "", "gru_reset_before"])
def test_unknown_kind(script, student, kind):
    """ValueError that names kind, by a count that answers to its sizes."""
    run = script()
    one, other = (run.call("count_parameters", "gru", D, 3) for D in (2, 5))
    run.raises("count_parameters", kind, 2, 3)
    trace = student(run)
    assert trace[one] != trace[other], "count_parameters ignores input_dim."
    said = trace.raised.message
    named = "kind" in said or repr(kind) in said or any(known in said for known in KINDS)
    assert named, "The ValueError of count_parameters should name the argument at fault, kind."
