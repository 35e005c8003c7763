"""The testbed's artifacts: groups, pairing, means over settings, claims, and a run of the smallest size."""

import math

import jax.random as jr
import pytest

from reproduce import limit
from reproduce.aggregate import read_rows
from reproduce.artifacts import fig05, fig09, testbed_departures, testbed_tuning
from reproduce.artifacts._testbed import mean_of
from reproduce.claims import Verdict, judge
from reproduce.configs.testbed import (
    ABLATIONS,
    ALL_PROBLEMS,
    BALANCED,
    ENSEMBLE_SIZES,
    MANY_DATA,
    SGMCMC_GRID,
    SWEPT_CHAIN,
    TUNED_SGMCMC,
    Departures,
    Scaling,
    Score,
    TunedChains,
    Tuning,
    variant_of,
)
from reproduce.experiments import testbed
from reproduce.paths import REFERENCE
from reproduce.registry import CLAIMS, REGISTRY
from reproduce.stats import PROBLEMS, where

pytestmark = pytest.mark.once


def row(label, problem, value, *, setting=1, **more):
    agent = label.split("-")[0]
    known = {
        "agent": agent,
        "label": label,
        "problem": problem,
        "input_dim": setting,
        "data_ratio": 1,
        "temperature": 1,
    }
    return {**known, "marginal": value, "joint": 10 * value, "parameters": 10, "flops": 1e9, "nonfinite": 0, **more}


def test_the_error_of_a_mean_is_over_seeds_within_settings():
    rows = [row("mlp", 1, 1.0), row("mlp", 2, 3.0), row("mlp", 3, 10.0, setting=2), row("mlp", 4, 10.0, setting=2)]
    mean, error = mean_of(rows, "mlp", "marginal")
    # Means 2 and 10; the variance of the first is 2 / 2, that of the second 0.
    assert mean == pytest.approx(6.0)
    assert error == pytest.approx(math.sqrt(1.0 + 0.0) / 2)


def test_differences_are_paired_by_problem():
    rows = [row(label, problem, problem + shift) for label, shift in (("mlp", 0), ("bbb", 1)) for problem in (1, 5, 9)]
    assert PROBLEMS.difference(
        where(rows, label="bbb"), where(rows, label="mlp"), "marginal", "marginal"
    ) == pytest.approx((1.0, 0.0))


def test_one_seed_has_no_error():
    assert math.isnan(mean_of([row("mlp", 1, 1.0)], "mlp", "marginal")[1])


def test_a_claim_about_agents_that_a_tier_does_not_have_is_undecided():
    rows = [row("mlp", 1, 1.0), row("mlp", 2, 1.1), row("epinet", 1, 0.5), row("epinet", 2, 0.6)]
    assert judge(CLAIMS["fig05-sgmcmc"], rows).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(("better", "verdict"), [(0.1, Verdict.HOLDS), (-0.1, Verdict.FAILS)])
def test_the_ensemble_claim_follows_the_numbers(better, verdict):
    large = "ensemble-num_particles=100"
    rows = [row("epinet", p, 0.2 + 0.01 * p - better) for p in (1, 2, 3)]
    rows += [row(large, p, 0.2 + 0.01 * p, parameters=1000) for p in (1, 2, 3)]
    assert judge(CLAIMS["fig05-ensemble"], rows).verdict is verdict


def test_the_paper_tier_is_the_whole_testbed():
    units = Scaling().units()
    assert {unit.problem for unit in units.values()} == set(range(1, 181))
    agents = {unit.variant.label if "ensemble" in unit.variant.agent else unit.variant.agent for unit in units.values()}
    assert len(units) == 180 * len(agents) == 180 * (6 + 2 * len(ENSEMBLE_SIZES))
    assert len(ABLATIONS) == 6


def test_released_chains_are_long_where_data_are_many_and_tuned_ones_are_judged(monkeypatch):
    released = [unit for unit in Scaling().units().values() if unit.variant.agent == "sgmcmc"]
    for unit in released:
        many = testbed.find_setting(unit.problem).data_ratio >= 100
        assert testbed.make_agent(unit.variant).num_steps == (500_000 if many else 100_000)
        assert (unit.problem in MANY_DATA) is many
    tuned = list(TunedChains(problems=ALL_PROBLEMS).units().values())
    for unit in tuned:
        agent = testbed.make_agent(unit.variant)
        assert (agent.learning_rate, agent.prior_variance) in SGMCMC_GRID and agent.num_steps == SWEPT_CHAIN
        temperature = testbed.find_setting(unit.problem).temperature
        assert TUNED_SGMCMC[temperature] == (agent.learning_rate, agent.prior_variance)
    labels = [{unit.problem: unit.variant.label for unit in own} for own in (released, tuned)]
    problems = (15, 16, 31, 32)
    rows = [row("epinet", problem, 0.1 * problem) for problem in problems]
    rows += [row(labels[0][problem], problem, 0.1 * problem + 0.1, flops=3e9) for problem in problems]
    better = [row(labels[1][problem], problem, 0.1 * problem - 0.1) for problem in (*problems, 33)]
    monkeypatch.setattr(limit, "_accepted", lambda name: better if name == "testbed_sgmcmc" else [])
    line = judge(CLAIMS["fig05-sgmcmc"], rows)
    assert (line.verdict, line.measurement.value) == (Verdict.HOLDS, pytest.approx(1.0))
    assert judge(CLAIMS["fig05-sgmcmc-compute"], rows).measurement.value == pytest.approx(3.0)
    # Shorter chains are no measure of what the agent costs.
    assert judge(CLAIMS["fig05-sgmcmc-compute"], rows[:6]).verdict is Verdict.UNDECIDED
    rows.append(row("mlp", 15, 1.0, parameters=5, flops=5e8))
    names = [line.get_label() for line in fig05.draw(rows).axes[0].get_lines()]
    assert [name for name in names if "sgmcmc" in name] == ["sgmcmc", "sgmcmc, released"]


def test_sgmcmc_is_the_best_of_the_sweep_on_problems_that_are_not_judged():
    rows = read_rows(REFERENCE / "paper" / "testbed_tuning.csv")
    assert testbed_tuning.best(rows) == TUNED_SGMCMC
    assert REGISTRY["testbed_tuning"].seed != REGISTRY["fig05"].seed
    units = Tuning().units()
    assert len(units) == 12 * len(SGMCMC_GRID) == 12 * 18
    assert all(testbed.make_agent(unit.variant).adaptive_prior_variance for unit in units.values())
    assert testbed_tuning.draw(rows).axes


def test_groups_are_of_one_agent_and_one_shape():
    units = Scaling(problems=BALANCED).units()
    groups = testbed.groups(units)
    assert sorted(name for group in groups for name in group) == sorted(units)
    for group in groups:
        assert len({units[name].variant for name in group}) == 1
        assert len({testbed.find_setting(units[name].problem).input_dim for name in group}) == 1
    # 100 particles fill a stack alone.
    assert all(len(group) == 1 for group in groups if "particles=100" in group[0])


def test_the_laptop_tier_is_balanced():
    settings = [testbed.find_setting(number) for number in BALANCED]
    for name, values in (("input_dim", (2, 10, 100)), ("temperature", (0.01, 0.1, 0.5))):
        assert [sum(getattr(setting, name) == value for setting in settings) for value in values] == [4, 4, 4]
    assert {setting.data_ratio for setting in settings} == {1, 10, 100, 1000}
    assert set(REGISTRY["fig09"].at_tier("laptop").problems) <= set(BALANCED)


@pytest.mark.parametrize("metric", ["marginal", "joint"])
def test_the_laptop_tier_stands_for_all_problems(metric):
    rows = read_rows(REFERENCE / "paper" / "fig05.csv")
    few = [row for row in rows if row["problem"] in BALANCED]
    labels = {
        unit.variant.label
        for unit in REGISTRY["fig05"].at_tier("laptop").units().values()
        if unit.variant.agent != "sgmcmc"
    }
    for label in labels:
        mean, whole = mean_of(few, label, metric)[0], mean_of(rows, label, metric)[0]
        assert mean == pytest.approx(whole, rel=0.15), label


def test_agents_meet_the_same_problems_and_variants_begin_alike():
    variants = [variant_of("mlp", num_steps=2), variant_of("mlp", num_steps=2, learning_rate=0.0)]
    alone = testbed.train(variants[0], [16], key=jr.key(0))
    stacked = testbed.train(variants[0], [16, 17], key=jr.key(0))
    other = testbed.train(variants[1], [16], key=jr.key(0))
    for trained in (stacked, other):
        assert (trained.problems.data.x[0] == alone.problems.data.x[0]).all()
        assert (jr.key_data(trained.test_keys[0]) == jr.key_data(alone.test_keys[0])).all()


def test_scores_are_one_row_per_problem_and_can_be_drawn():
    variant = variant_of("epinet", num_steps=2)
    configs = [Score(variant=variant, problem=problem, num_batches=4) for problem in (16, 17)]
    found = testbed.score(configs, key=jr.key(0))
    rows = [{**row, "label": "epinet"} for rows in found for row in rows]
    assert [row["problem"] for row in rows] == [16, 17]
    assert all(row["joint"] > row["marginal"] > 0 and row["nonfinite"] == 0 for row in rows)
    assert rows[0]["trainable"] < rows[0]["parameters"]
    # Twice the steps are twice the work.
    twice = testbed.make_agent(variant_of("epinet", num_steps=4))
    setting = testbed.find_setting(16)
    assert testbed.training_flops(twice, setting) == pytest.approx(2 * rows[0]["flops"])
    assert fig05.draw(rows).axes
    changed = [{**row, "label": variant_of("epinet", prior_scale=1.0).label} for row in rows]
    assert fig09.draw([*rows, *changed]).axes


def test_departures_share_what_the_figures_have_and_claims_follow_the_numbers():
    units = Departures().units()
    assert units["epinet-001"] == Scaling().units()["epinet-001"]
    labels = list(dict.fromkeys(unit.variant.label for unit in units.values()))
    agents = [testbed.make_agent(unit.variant) for unit in units.values()]
    assert {agent.prior_variance for agent in agents if hasattr(agent, "prior_variance")} == {0.1, 1.0, 10.0}
    values = dict(zip(labels, (0.2, 0.21, 0.3, 0.5, 0.1, 0.15), strict=True))
    rows = [row(label, problem, value + 0.01 * problem) for label, value in values.items() for problem in (1, 2, 3)]
    assert not MANY_DATA & {unit.problem for unit in units.values() if unit.variant.agent == "sgmcmc"}
    names = ("initializer", "stop-gradient")
    verdicts = [judge(CLAIMS[f"testbed_departures-{name}"], rows).verdict for name in names]
    assert verdicts == [Verdict.HOLDS, Verdict.FAILS]
    left = testbed_departures.draw(rows).axes[0]
    assert [text.get_text() for text in left.get_yticklabels()][3:5] == [
        "sgmcmc, prior variance 0.1",
        "sgmcmc, prior variance 1",
    ]
    more = [row(label, 31, 0.3, data_ratio=100) for label in labels[:3]]
    left = testbed_departures.draw([*rows, *more]).axes[0]
    assert [text.get_text() for text in left.get_yticklabels()][3:5] == [
        "epinet, as in the paper, $\\lambda \\leq 1$",
        "sgmcmc, prior variance 0.1, $\\lambda \\leq 1$",
    ]
