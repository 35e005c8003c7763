"""How near agents are to the optimum: which problems count, ratios, claims, and the page that tells it."""

import pytest

from reproduce import limit
from reproduce.artifacts import testbed_limit
from reproduce.claims import Verdict, judge
from reproduce.configs.testbed_limit import COVERED, Limit
from reproduce.experiments import testbed_limit as experiment
from reproduce.registry import CLAIMS

pytestmark = pytest.mark.once


def optimum(problem, joint, *, first=None, second=None, median_r_hat=1.0, rank=0.5):
    runs = {"first_joint": joint if first is None else first, "second_joint": joint if second is None else second}
    known = {"agent": "bayes", "label": "bayes", "problem": problem, "input_dim": 2, "data_ratio": 1}
    rest = {"temperature": 0.01, "marginal": joint / 2, "joint": joint, "median_r_hat": median_r_hat, "rank": rank}
    return {**known, **runs, **rest}


def agent(label, problem, joint):
    return {**optimum(problem, joint), "agent": label.partition("-")[0], "label": label}


@pytest.fixture
def accepted(monkeypatch):
    rows = [agent("mlp", p, 2.0 * p) for p in (1, 2, 3)] + [agent("epinet", p, 1.05 * p) for p in (1, 2, 3)]
    rows += [agent("ensemble-num_particles=10", p, 0.1) for p in (1, 2, 3)]
    rows += [agent("ensemble-num_particles=100", p, 1.5 * p) for p in (1, 2, 3)]
    rows += [agent("sgmcmc-num_steps=5", p, 0.1) for p in (1, 2, 3)]
    tuned = [agent(f"sgmcmc-learning_rate=0.00{p}", p, 1.2 * p) for p in (1, 2, 3)]
    monkeypatch.setattr(limit, "_accepted", lambda name: {"fig05": rows, "testbed_sgmcmc": tuned}.get(name, []))


def test_problems_whose_chains_disagree_do_not_count(accepted):
    good = optimum(1, 1.0, first=1.03, second=0.97)
    bad = [optimum(2, 1.0, first=1.1, second=0.9), optimum(3, 1.0, median_r_hat=1.11)]
    assert limit.known([good, *bad]) == [good]
    assert {row["problem"] for row in limit.agents_on([good])} == {1}
    line = judge(CLAIMS["testbed_limit-converged"], [good, *bad])
    assert (line.verdict, line.measurement.value) == (Verdict.FAILS, pytest.approx(2 / 3))


def test_agents_are_those_of_full_size_and_tuned(accepted):
    optima = [optimum(p, 1.0 * p) for p in (1, 2)]
    agents = limit.agents_on(optima)
    ratios = {name: limit.over_optimum(agents, optima, name).value for name in ("mlp", "epinet", "ensemble", "sgmcmc")}
    assert ratios == pytest.approx({"mlp": 2.0, "epinet": 1.05, "ensemble": 1.5, "sgmcmc": 1.2})
    assert limit.nearest(agents, optima)[0] == "epinet"
    assert limit.nearest(agents, optima, temperature=0.5)[0] == ""
    verdicts = {name: judge(CLAIMS[f"testbed_limit-{name}"], optima).verdict for name in ("mlp", "epinet", "lowest")}
    assert verdicts == {"mlp": Verdict.FAILS, "epinet": Verdict.HOLDS, "lowest": Verdict.HOLDS}
    assert testbed_limit.draw(optima).axes


@pytest.mark.parametrize(("ranks", "verdict"), [((0.1, 0.35, 0.6, 0.9), Verdict.HOLDS), ((0.0,) * 4, Verdict.FAILS)])
def test_ranks_must_be_uniform(ranks, verdict):
    rows = [optimum(number, 1.0, rank=rank) for number, rank in enumerate(ranks)]
    assert judge(CLAIMS["testbed_limit-calibrated"], rows).verdict is verdict


def test_groups_are_of_one_shape_and_few_examples_have_more_chains():
    assert [unit.problem for unit in Limit().units().values()] == list(COVERED)
    units = Limit(problems=(1, 2, 76, 77)).units()
    for group in experiment.groups(units):
        settings = [experiment.find_setting(units[name].problem) for name in group]
        assert len({(setting.input_dim, setting.num_train) for setting in settings}) == 1
        chains = {(units[name].num_chains, units[name].num_samples) for name in group}
        assert chains == ({(128, 8)} if settings[0].num_train <= 20 else {(64, 16)})
