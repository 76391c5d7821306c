"""Hostile submissions: a sample is held at the strongest tier here, and the suite sees one that is not.

The whole suite, at every level, is ``make attacks``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("workers need Linux", allow_module_level=True)

import suite
from crowd import machine
from softmark.isolation.tiers import reach

ATTACKS = suite.read_attacks()
PAGE = Path(__file__).parents[1] / "docs/threat-model.md"
SAMPLE = 15


@pytest.fixture(scope="module")
def level():
    """The strongest that this machine gives."""
    return reach().tier


def test_there_are_many_and_each_says_what_it_tries():
    assert len(ATTACKS) >= 80
    assert len({attack.tries for attack in ATTACKS}) == len(ATTACKS)
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


def test_each_stands_in_the_table_of_the_threat_model():
    table = PAGE.read_text().split("<!-- attacks: begin -->")[1].split("<!-- attacks: end -->")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| a submission that", "| ---"))]
    told = {row.removesuffix(" |").rsplit(" | ", len(suite.LEVELS))[0] for row in rows}
    assert told == {suite.row(attack) for attack in ATTACKS}, "run: make attacks"


def test_a_sample_is_held(level):
    # one of every so many, so that each family is there
    attacks = [ATTACKS[len(ATTACKS) * n // SAMPLE] for n in range(SAMPLE)]
    with suite.prepare(attacks) as ground:
        alone = suite.grade(ground, level, "alone", workers=1)
        before = machine(ground.folder / "temporary")
        graded = suite.grade(ground, level)
        found = {
            attack.name: suite.problems(ground, attack, id, level, graded)
            for id, attack in suite.ids(attacks)
        }
        assert {name: said for name, said in found.items() if said} == {}
        assert suite.disturbed(ground, graded, alone) == []
        assert ground.spoiled() == []
        assert ground.leaked(graded.printed) == []
        assert machine(ground.folder / "temporary") == before


LOOKS = ("open_solution", "tcp")


def test_where_nothing_stops_them_the_suite_sees_it(level):
    attacks = [attack for attack in ATTACKS if attack.name in LOOKS]
    with suite.prepare(attacks) as ground:
        graded = suite.grade(ground, suite.UNPROTECTED)
        for id, attack in suite.ids(attacks):
            found = suite.problems(ground, attack, id, suite.UNPROTECTED, graded)
            assert any(said.startswith("reached:") for said in found), found
        assert any("server was called" in said for said in ground.spoiled())


def test_an_undue_point_is_seen(level):
    """A right submission, said to lose what it does not lose."""
    harmless = suite.Attack("none", "harmless", "Is right.", "", loses=("scale.values",))
    with suite.prepare([harmless]) as ground:
        graded = suite.grade(ground, level)
        (id,) = (id for id, _ in suite.ids([harmless]))
        assert len(suite.problems(ground, harmless, id, level, graded)) == 1


def test_a_disturbed_neighbour_is_seen(level):
    harmless = suite.Attack("none", "harmless", "Is right.", "")
    with suite.prepare([harmless, harmless]) as ground:
        alone = suite.grade(ground, level, "alone", workers=1)
        right, wrong = alone.results["right"], alone.results["wrong"]
        seen = {"000_neighbour_0_right": wrong, "001_neighbour_0_wrong": wrong, "forged": right}
        found = suite.disturbed(ground, suite.Graded(seen, "", 0, 1.0), alone)
        # one is another's, those of the harmless ones are missing, one is nobody's
        assert len(found) == 4, found
