"""How near agents are to the optimum: which problems count, ratios, claims, and the page that tells it."""

import pytest

from reproduce import limit
from reproduce.artifacts import testbed_limit, testbed_regret
from reproduce.claims import Verdict, judge
from reproduce.configs.testbed_limit import COVERED, Limit
from reproduce.experiments import testbed_limit as experiment
from reproduce.registry import CLAIMS

pytestmark = pytest.mark.once


def optimum(problem, joint, *, first=None, second=None, median_r_hat=1.0, rank=0.5, **setting):
    runs = {"first_joint": joint if first is None else first, "second_joint": joint if second is None else second}
    known = {"agent": "bayes", "label": "bayes", "problem": problem, "input_dim": 2, "data_ratio": 1}
    rest = {"temperature": 0.01, "marginal": joint / 2, "joint": joint, "median_r_hat": median_r_hat, "rank": rank}
    return {**known, **runs, **rest, **setting}


def agent(label, problem, joint, **setting):
    return {**optimum(problem, joint, **setting), "agent": label.partition("-")[0], "label": label}


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


def test_settings_are_counted_where_an_agent_is_near(monkeypatch):
    near, far = {"data_ratio": 1}, {"data_ratio": 10}
    rows = [agent(name, p, 1.05 * p, **near) for name in ("mlp", "epinet") for p in (1, 2)]
    rows += [agent("mlp", p, 3.0 * p, **far) for p in (16, 17)] + [agent("epinet", p, 2.5 * p, **far) for p in (16, 17)]
    monkeypatch.setattr(limit, "_accepted", lambda name: rows if name == "fig05" else [])
    optima = [optimum(p, 1.0 * p, **near) for p in (1, 2)] + [optimum(p, 1.0 * p, **far) for p in (16, 17)]
    lines = {name: judge(CLAIMS[f"testbed_limit-{name}"], optima) for name in ("mlp-settings", "everyone", "covered")}
    assert lines["mlp-settings"].measurement.value == 0.5
    # At the harder setting the nearest agent is the epinet.
    assert lines["everyone"].measurement.value == pytest.approx(2.5) and lines["everyone"].verdict is Verdict.FAILS
    assert lines["covered"].measurement.value == 4
    verdicts = [judge(CLAIMS[f"testbed_limit-d2-lambda{ratio}"], optima).verdict for ratio in (1, 10, 100)]
    assert verdicts == [Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED]
    # A problem whose chains disagree is not known.
    assert judge(CLAIMS["testbed_limit-covered"], [optimum(1, 1.0, median_r_hat=2.0)]).measurement.value == 0


def test_regret_is_beyond_the_optimum_of_the_same_problem(accepted, monkeypatch):
    optima = [optimum(p, 1.0 * p) for p in (1, 2, 3)]
    agents = limit.agents_on(optima)
    assert [row["regret"] for row in limit.regret(agents, optima, "mlp")] == pytest.approx([1.0, 2.0, 3.0])
    assert judge(CLAIMS["testbed_regret-epinet"], optima).measurement.value == pytest.approx(0.05)
    assert judge(CLAIMS["testbed_regret-ensemble"], optima).measurement.value == pytest.approx(0.5)
    # Figure 9 is not accepted here: nothing is said about its epinets, and they are not drawn.
    assert judge(CLAIMS["testbed_regret-tuned"], optima).verdict is Verdict.UNDECIDED
    assert len(testbed_regret.draw(optima).axes) == 3
    known = limit._accepted
    better = [agent("epinet", p, 1.05 * p) for p in (1, 2)] + [
        agent("epinet-index_dim=32", p, 1.02 * p) for p in (1, 2)
    ]
    monkeypatch.setattr(limit, "_accepted", lambda name: better if name == "fig09" else known(name))
    line = judge(CLAIMS["testbed_regret-tuned"], optima)
    assert line.measurement.value == pytest.approx(-0.045)
    # A setting with one problem has no error, and does not take it from the others.
    one = {"data_ratio": 10}
    better += [agent(name, 16, 9.0, **one) for name in ("epinet", "epinet-index_dim=32")]
    assert judge(CLAIMS["testbed_regret-tuned"], [*optima, optimum(16, 1.0, **one)]).measurement == line.measurement
    assert testbed_regret.draw(optima).axes


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
    sizes = {(unit.num_chains, unit.num_samples, unit.thin) for unit in Limit(problems=(91, 136)).units().values()}
    assert sizes == {(32, 16, 4), (32, 16, 8)}
    assert [unit.thin for unit in Limit(problems=(76, 121)).units().values()] == [2, 4]
