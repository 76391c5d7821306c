"""What students see of a result: each level shows what it should, and no level what is not theirs."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from softmark.course import Feedback, Shows
from softmark.feedback import as_shown, shows_now
from softmark.result import ItemResult, Result

LEVELS = get_args(Shows)
KNOWN = "Did you average over the batch?"
STRUCTURAL = "Every entry is 3 times too small."
FAULT = "the grader failed at test_step.py:41: AssertionError: 0.7310585 != nan"


def item(id, status, **more):
    full = {"id": id, "title": f"about {id}", "tier": "core", "score": 0.0, "max_score": 4.0}
    return ItemResult(**{**full, "status": status, **more})


RESULT = Result(
    student="one",
    topic="02_lstm",
    status="graded",
    score=None,
    max_score=16.0,
    items=(
        item("right", "passed", score=4.0, claim=True),
        item("known", "failed", message="db is wrong.", hints=(KNOWN,), mistake="db_averaged"),
        item("wrong", "failed", message="dW is wrong.", hints=(STRUCTURAL,), cause="timeout"),
        item("fault", "error", score=None, message=FAULT, hints=(FAULT,), cause="error"),
        item("away", "not_graded", score=None, message="PyTorch is not installed here."),
    ),
    notes=("took lstm (1).py for lstm.py",),
    flags=("lstm.py:3 imports os",),
)
WRONG_FILE = RESULT.model_copy(
    update={"status": "missing", "score": 0.0, "message": "lstm.py is not in it.", "flags": ()}
)


def shown(shows, result=RESULT):
    return {one.id: one for one in as_shown(result, shows).items}


def test_hints_show_all_that_is_the_students():
    items = shown("hints")
    assert items["known"].hints == (KNOWN,)
    assert items["wrong"].hints == (STRUCTURAL,)
    assert items["wrong"].cause == "timeout"


def test_messages_show_hints_that_come_from_the_values_alone():
    items = shown("messages")
    assert items["known"].message == "db is wrong."
    assert items["known"].hints == ()
    assert items["wrong"].hints == (STRUCTURAL,)


def test_items_show_points_and_nothing_on_why():
    items = shown("items")
    assert [one.score for one in items.values()] == [one.score for one in RESULT.items]
    for id in ("known", "wrong"):
        assert (items[id].message, items[id].hints, items[id].cause) == ("", (), None)
    assert items["away"].message == "PyTorch is not installed here.", "that is not about their code"


def test_a_total_shows_no_item_and_nothing_not_even_that():
    whole = RESULT.model_copy(update={"score": 4.0})
    assert (as_shown(whole, "total").score, as_shown(whole, "total").items) == (4.0, ())
    assert (as_shown(whole, "nothing").score, as_shown(whole, "nothing").items) == (None, ())


@pytest.mark.parametrize("shows", LEVELS)
def test_no_level_shows_what_is_the_instructors(shows):
    result = as_shown(RESULT, shows)
    text = result.to_json()
    assert FAULT not in text
    assert "db_averaged" not in text
    assert "imports os" not in text
    assert not any(one.claim for one in result.items)


@pytest.mark.parametrize("shows", LEVELS)
def test_every_level_says_that_a_file_could_not_be_read(shows):
    result = as_shown(WRONG_FILE, shows)
    assert (result.status, result.message) == ("missing", "lstm.py is not in it.")
    assert result.notes == WRONG_FILE.notes


@pytest.mark.parametrize("shows", LEVELS)
def test_that_the_grader_died_is_said_without_its_words(shows):
    died = RESULT.model_copy(update={"message": FAULT})
    said = as_shown(died, shows).message
    assert said
    assert FAULT not in said


def test_each_level_shows_all_that_the_one_before_it_does():
    for less, more in itertools.pairwise(LEVELS):
        before, after = shown(less), shown(more)
        for id, one in before.items():
            assert set(one.hints) <= set(after[id].hints)
            assert one.message in ("", after[id].message)


def test_nothing_is_changed_in_the_result_itself():
    before = RESULT.to_json()
    as_shown(RESULT, "nothing")
    assert RESULT.to_json() == before


def test_before_and_after_the_last_date():
    feedback = Feedback(before_due="items", after_due="hints")
    assert shows_now(feedback, closed=False, earlier_today=0) == "items"
    assert shows_now(feedback, closed=True, earlier_today=0) == "hints"


def test_the_answers_of_a_day():
    feedback = Feedback(runs_a_day=2)
    assert [shows_now(feedback, closed=False, earlier_today=n) for n in (0, 1, 2, 9)] == [
        "messages",
        "messages",
        "nothing",
        "nothing",
    ]
    assert shows_now(feedback, closed=True, earlier_today=9) == "hints"
    unlimited = Feedback(runs_a_day=0)
    assert shows_now(unlimited, closed=False, earlier_today=999) == "messages"
