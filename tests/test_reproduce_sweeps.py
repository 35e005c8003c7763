"""The authors' sweeps of the testbed's agents: their members, the best of them, and what a claim makes of it."""

import pytest

from reproduce.aggregate import read_rows
from reproduce.artifacts import testbed_sweeps
from reproduce.claims import Verdict, judge
from reproduce.configs.testbed_sweeps import SWEEPS, SWEPT, SWEPT_PROBLEMS, Sweeps, member_of
from reproduce.experiments import testbed
from reproduce.paths import REFERENCE
from reproduce.registry import CLAIMS, REGISTRY

pytestmark = pytest.mark.once


def row(label, problem, joint):
    return {"agent": label.partition("-")[0], "label": label, "problem": problem, "joint": joint}


def test_the_best_members_are_those_of_the_accepted_sweeps():
    rows = read_rows(REFERENCE / "paper" / "testbed_sweeps.csv")
    best = {agent: testbed_sweeps.best(rows, agent) for agent in SWEEPS}
    assert best == {agent: member_of(agent, changes).label for agent, changes in SWEPT.items()}
    assert testbed_sweeps.draw(rows).axes


def test_members_are_agents_that_differ_from_the_released_one():
    units = Sweeps().units()
    members = {unit.variant.label: testbed.make_agent(unit.variant) for unit in units.values()}
    assert len(units) == len(members) * len(SWEPT_PROBLEMS)
    for agent, changes in SWEEPS.items():
        own = {label: made for label, made in members.items() if label.startswith(member_of(agent).label)}
        assert len(set(own.values())) == len(own) == 1 + len(changes)
    settings = [testbed.find_setting(problem) for problem in SWEPT_PROBLEMS]
    assert sorted({setting.temperature for setting in settings}) == [0.01, 0.1, 0.5]
    # What is chosen is judged elsewhere.
    assert REGISTRY["testbed_sweeps"].seed != REGISTRY["fig05"].seed


@pytest.mark.parametrize(("better", "verdict"), [(0.3, Verdict.FAILS), (-0.3, Verdict.HOLDS)])
def test_the_best_other_member_is_compared_with_the_released_agent(better, verdict):
    rows = [row("bbb", problem, 1.0 * problem) for problem in (1, 2, 3)]
    rows += [row("bbb-prior_std=2.0", problem, 1.0 * problem - better + 0.01 * problem) for problem in (1, 2, 3)]
    rows += [row("bbb-prior_std=4.0", problem, 9.0) for problem in (1, 2, 3)]
    line = judge(CLAIMS["testbed_sweeps-bbb"], rows)
    assert (line.verdict, line.measurement.value) == (verdict, pytest.approx(0.02 - better))
    assert testbed_sweeps.best(rows, "bbb") == ("bbb-prior_std=2.0" if better > 0 else "bbb")
    assert judge(CLAIMS["testbed_sweeps-dropout"], rows).verdict is Verdict.UNDECIDED
    assert len(testbed_sweeps.draw(rows).axes) == 4
