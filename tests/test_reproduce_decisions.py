"""The artifacts about decisions: protocols, pairing, correlations, claims, figures, and runs of the smallest size."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from test_data_formats import idx

from epinet_eqx import named_keys
from reproduce.artifacts import dec_active, dec_bandits, dec_horizon, dec_sets, dec_thesis
from reproduce.artifacts.dec_horizon import Horizon
from reproduce.artifacts.dec_sets import Sets
from reproduce.artifacts.dec_thesis import correlations
from reproduce.claims import Verdict, judge
from reproduce.configs.decisions import (
    ACQUISITIONS,
    HEAD,
    THROUGH_HEAD,
    ActiveLearning,
    BanditOf,
    Bandits,
    BanditSize,
    Thesis,
    bandit_variants,
)
from reproduce.configs.testbed import variant_of
from reproduce.errors import ReproduceError
from reproduce.experiments import active, bandits, bandits_fashion, decision_agents, horizon, sets, thesis
from reproduce.inputs import Inputs
from reproduce.registry import CLAIMS, REGISTRY
from reproduce.stats import rank_correlation

pytestmark = pytest.mark.once

SIZE = BanditSize(num_steps=3, num_runs=2, actions_per_dim=2, input_dim=2, pooling=4, batch_size=8, num_points=2)


def bandit_of(**changes):
    known = {"bandit": "neural", "variant": variant_of("mlp"), "rule": "thompson", "compute": "equal", "size": SIZE}
    return BanditOf(**(known | changes))


def bandit_rows(label, regret, *, rule="thompson", compute="equal", bandit="neural"):
    common = {"bandit": bandit, "agent": label.split("-")[0], "label": label, "rule": rule, "compute": compute}
    curve = [{**common, "row": "curve", "step": step, "regret": regret * step, "error": 0.1} for step in (1, 2)]
    runs = [{**common, "row": "run", "seed": seed, "step": 2, "regret": 2 * regret + seed} for seed in range(3)]
    return curve + runs


def thesis_rows(joint_sign):
    """Agents whose regret is ordered as their joint divergence, or against it; the marginal one is the other way."""
    agents = ("mlp", "dropout", "epinet", "bbb", "ensemble", "ensemble+", "hypermodel", "sgmcmc")

    return [
        {
            "agent": agent,
            "label": agent,
            "input_dim": 2,
            "temperature": 0.1,
            "seed": seed,
            "marginal": 0.2 - 0.01 * number,
            "joint": 1.0 + number + 0.01 * seed,
            "regret": 0.5 + joint_sign * 0.05 * number + 0.001 * seed,
        }
        for number, agent in enumerate(agents)
        for seed in range(4)
    ]


def set_rows(gain):
    rows = []
    for agent, own in (("mlp", 0.0), ("epinet", gain), ("ensemble", gain / 2)):
        for copies in (1, 4):
            for seed in range(4):
                marginal = 0.6 + 0.01 * seed
                joint = marginal + (own if copies > 1 else 0.0)
                values = {
                    "joint": joint,
                    "exact": joint,
                    "marginal": marginal,
                    "random": 0.5,
                    "truth": 1.0,
                    "ratio": 0.9,
                }
                rows.append(
                    {"agent": agent, "label": agent, "temperature": 0.1, "copies": copies, "seed": seed, **values}
                )
    return rows


def active_rows(needed):
    rows = []
    for name in ACQUISITIONS:
        for seed in range(3):
            common = {"acquisition": name, "level": 0.8, "seed": seed}
            rows += [{**common, "row": "round", "labels": 10 * n, "accuracy": 0.3 * n} for n in (1, 2, 3)]
            rows.append({**common, "row": "needed", "labels": needed.get(name, 28.0) + seed, "budget": 30})
    return rows


def verdict(claim, rows):
    return judge(CLAIMS[claim], rows).verdict


def test_ranks_share_ties_and_are_correlated_by_hand():
    assert rank_correlation(np.array([1.0, 2.0, 5.0]), np.array([0.1, 0.2, 0.3])) == pytest.approx(1.0)
    assert rank_correlation(np.array([1.0, 2.0, 5.0]), np.array([0.3, 0.2, 0.1])) == pytest.approx(-1.0)
    # Ranks 0.5, 0.5, 2 and 0, 1, 2: covariance 1.5, squares 1.5 and 2.
    tied = rank_correlation(np.array([1.0, 1.0, math.inf]), np.array([0.1, 0.2, 0.3]))
    assert tied == pytest.approx(1.5 / math.sqrt(1.5 * 2))
    assert math.isnan(rank_correlation(np.ones(3), np.arange(3.0)))


@pytest.mark.parametrize(("sign", "expected"), [(1, Verdict.HOLDS), (-1, Verdict.FAILS)])
def test_the_thesis_follows_the_numbers(sign, expected):
    rows = thesis_rows(sign)
    values, resamples = correlations(rows)
    assert values["joint"] == pytest.approx(sign)
    assert len(resamples["joint"]) > 1000
    assert verdict("dec_thesis-joint", rows) is expected
    assert verdict("dec_thesis-beyond", rows) is expected
    assert dec_thesis.draw(rows).axes


def test_a_failed_agent_is_the_worst():
    rows = [row if row["agent"] != "mlp" else {**row, "regret": "nan"} for row in thesis_rows(1)]
    assert correlations(rows)[0]["joint"] < 0.5


@pytest.mark.parametrize(("better", "expected"), [(0.5, Verdict.HOLDS), (-0.5, Verdict.FAILS)])
def test_regret_is_compared_in_pairs(better, expected):
    large = "ensemble-num_particles=30"
    rows = bandit_rows("epinet", 2.0) + bandit_rows("mlp", 2.0 + better) + bandit_rows(large, 2.0 + better)
    rows += bandit_rows("ensemble-num_particles=3", 2.0 - better)
    rows += bandit_rows("epinet", 2.0 + better, rule="greedy") + bandit_rows(large, 2.0 + better, compute="matched")
    for claim in ("neural-mlp", "neural-ensemble", "matched", "greedy"):
        assert verdict(f"dec_bandits-{claim}", rows) is expected
    assert verdict("dec_bandits-linear-mlp", rows) is Verdict.UNDECIDED
    assert dec_bandits.draw(rows).axes


@pytest.mark.parametrize(("gain", "expected"), [(0.1, Verdict.HOLDS), (-0.1, Verdict.FAILS)])
def test_sets_are_compared_in_pairs(gain, expected):
    rows = set_rows(gain)
    for claim in ("joint", "copies", "ensemble"):
        assert verdict(f"dec_sets-{claim}", rows) is expected
    for claim in ("mlp", "greedy", "bound"):
        assert verdict(f"dec_sets-{claim}", rows) is Verdict.HOLDS
    assert dec_sets.draw(rows).axes


def test_labels_are_counted_up_to_the_budget():
    rows = active_rows({"uniform": 25.0, "bald": 15.0, "epig": math.inf})
    assert verdict("dec_active-bald", rows) is Verdict.HOLDS
    found = judge(CLAIMS["dec_active-epig"], rows)
    # 30 minus 25, 26 and 27.
    assert found.measurement.value == pytest.approx(4.0) and found.verdict is Verdict.FAILS
    assert dec_active.draw(rows).axes


def test_the_labels_that_are_needed_lie_between_rounds():
    assert active.labels_needed([10, 20, 30], [0.2, 0.6, 0.7], 0.5) == pytest.approx(17.5)
    assert active.labels_needed([10, 20], [0.6, 0.7], 0.5) == 10
    assert active.labels_needed([10, 20], [0.1, 0.2], 0.5) == math.inf


def test_protocols_are_whole_at_the_laptop_tier():
    units = REGISTRY["dec_bandits"].at_tier("laptop").units()
    labels = {unit.variant.label for unit in units.values()}
    assert {"epinet", "dropout", "mlp", "ensemble+-num_particles=10"} < labels
    assert {f"ensemble-num_particles={size}" for size in (3, 10)} < labels
    assert {unit.bandit for unit in units.values()} == {"linear", "neural", "digits"}
    assert {unit.rule for unit in units.values()} == {"thompson", "greedy", "epsilon-greedy"}
    assert {unit.rule for unit in Bandits().units().values()} == set(decision_agents.RULES)
    assert {unit.compute for unit in units.values()} == {"equal", "matched"}
    assert set(REGISTRY["dec_active"].at_tier("laptop").units()) == set(ACQUISITIONS)


def test_runs_of_one_program_are_grouped():
    units = REGISTRY["dec_thesis"].at_tier("laptop").units()
    for group in thesis.groups(units):
        assert len({(units[name].variant, units[name].input_dim) for name in group}) == 1
        assert len(group) == len({units[name].temperature for name in group}) == 3
    assert [len(group) for group in sets.groups(Sets().units())] == [2] * 5


@pytest.mark.long
def test_matched_batches_have_the_operations_of_the_epinet():
    size = replace(SIZE, batch_size=100)
    sizes = [
        bandits.batch_size_of(
            bandit_of(variant=variant_of("ensemble", num_particles=number), compute="matched", size=size),
            bandits.find_place("neural", size),
        )
        for number in (3, 30)
    ]
    # An update of a particle costs the same in every ensemble.
    assert sizes[0] == pytest.approx(10 * sizes[1], rel=0.1)
    assert 1 < sizes[1] < 100


def test_decay_is_the_tuned_one_for_the_examples_so_far():
    knowledge = decision_agents.knowledge_of(10, 2, 0.1)
    agent = decision_agents.sgd_agent(variant_of("epinet"))
    tuned = agent.loss(replace_count(knowledge, 40))
    assert 40.0 ** -decision_agents.prior_power(agent) * float(agent.loss(knowledge).penalty.scale) == pytest.approx(
        float(tuned.penalty.scale), rel=1e-5
    )


@pytest.mark.parametrize(
    ("variant", "factor"),
    [
        (variant_of("mlp"), 1.0),
        (variant_of("epinet"), 0.2),
        (variant_of("ensemble", num_particles=4), 0.25),
        (variant_of("ensemble+", num_particles=4), 0.25),
        (variant_of("hypermodel"), 1.0),
        (variant_of("dropout"), 1.0),
    ],
)
def test_the_decay_in_a_bandit_is_that_of_the_authors_bandit(variant, factor):
    knowledge = decision_agents.knowledge_of(10, 2, 0.1)
    agent = decision_agents.bandit_agent(variant, knowledge, "thompson", batch_size=128)
    # 2 rho l2, divided by the number of observations, whatever the dimension.
    assert float(agent.loss.penalty.scale) == pytest.approx(2 * 0.1 * factor)
    assert float(agent.prior_power) == 1 and agent.buffer_size == 10_000 and agent.num_updates == 1


def test_the_divergence_of_bayes_by_backprop_in_a_bandit_counts_by_the_root_of_the_temperature():
    penalty = decision_agents.bandit_loss(
        decision_agents.sgd_agent(variant_of("bbb")), decision_agents.knowledge_of(2, 2, 0.25), None
    ).penalty
    assert float(penalty.coefficient) == pytest.approx(2 * 0.5)


def test_the_original_protocol_is_whole():
    units = REGISTRY["dec_original"].at_tier("paper").units().values()
    for unit in units:
        assert (unit.size.num_steps, unit.size.num_runs, unit.size.batch_size) == (10_000, 20, 128)
        assert (unit.bandit, unit.size.input_dim, unit.size.num_actions) == ("neural", 2, 100)
    assert {f"ensemble-num_particles={size}" for size in (3, 10)} < {unit.variant.label for unit in units}
    # Many short runs decide what a few long ones cannot.
    for unit in REGISTRY["dec_bandits"].at_tier("paper").units().values():
        assert (unit.size.num_steps, unit.size.num_runs, unit.size.num_actions) == (1000, 64, 500)
    default = Thesis().units().values()
    temperatures = (0.01, 0.1, 0.5)
    assert {(unit.input_dim, unit.temperature) for unit in default} == {(d, r) for d in (2, 10) for r in temperatures}
    assert {unit.num_problems for unit in default} == {20}
    # What was run has more agents on fewer problems, of two dimensions; a bandit is as long as the authors'.
    run = REGISTRY["dec_thesis"].at_tier("paper").units().values()
    assert {unit.input_dim for unit in run} == {2} and {unit.temperature for unit in run} == {0.01, 0.1, 0.5}
    for units in (default, run):
        assert {(u.num_steps, u.batch_size, u.actions_per_dim) for u in units} == {(10_000, 128, 50)}


def replace_count(knowledge, count):
    return type(knowledge)(knowledge.input_dim, knowledge.num_classes, jnp.asarray(count), knowledge.temperature)


def test_a_bandit_has_the_true_model_of_its_problem():
    config = next(iter(REGISTRY["dec_thesis"].at_tier("smoke").units().values()))
    problem = thesis.make_problems(config, key=jr.key(0))[1]
    environment = thesis.TestbedEnvironment(jnp.asarray(config.temperature), config.input_dim, 4)
    bandit = environment(named_keys(thesis.run_keys(config, key=jr.key(0))[1], "environment")[0])
    x = jnp.ones(config.input_dim)
    np.testing.assert_allclose(bandit.model(x), problem.model(x), rtol=1e-4)


def test_candidates_come_in_groups():
    config = next(iter(REGISTRY["dec_sets"].at_tier("laptop").units().values()))
    pool = sets.make_candidates(config, jnp.asarray(4), key=jr.key(0))
    first, second = pool[0] - pool[3], pool[0] - pool[4]
    assert pool.shape == (12, 10) and jnp.linalg.norm(first) < 1 < jnp.linalg.norm(second)
    masks = sets.all_sets(5, 2)
    assert masks.shape == (10, 5) and (masks.sum(axis=1) == 2).all() and len(np.unique(masks, axis=0)) == 10


def test_agents_meet_the_same_bandits():
    (rows,) = bandits.run([bandit_of()], key=jr.key(0))
    runs = [row for row in rows if row["row"] == "run"]
    curve = [row for row in rows if row["row"] == "curve"]
    assert [row["seed"] for row in runs] == [0, 1] and [row["step"] for row in curve] == [1, 2, 3]
    assert curve[-1]["regret"] == pytest.approx(np.mean([row["regret"] for row in runs]))


def test_a_network_acts_through_a_head_and_learns_as_without_it():
    at_one = replace(THROUGH_HEAD, changes=(("alpha", 1.0), ("length_scale", 1.0)))
    alone, through = (bandits.run([bandit_of(variant=own)], key=jr.key(0))[0] for own in (variant_of("mlp"), at_one))
    # A share of one leaves nothing to know: the head is the network.
    assert [row["regret"] for row in through] == pytest.approx([row["regret"] for row in alone], abs=1e-5)
    assert {row["agent"] for row in through} == {HEAD}
    # Standardized by the inputs of the actions, whatever these are.
    place = bandits.find_place("digits", SIZE)
    field = bandits.head_field(place, 1.0, key=jr.key(1))
    inputs = jnp.concatenate([place.environment.round(key=key).inputs for key in jr.split(jr.key(2), 50)])
    standardized = jax.vmap(field.standardize)(inputs)
    assert abs(standardized.mean()) < 0.1 and 0.5 < standardized.std() < 1.5
    # A head is a classifier.
    places = {unit.bandit for unit in Bandits(variants=(THROUGH_HEAD,), rules=()).units().values()}
    assert places == {"neural", "digits"}


def test_rules_meet_the_same_bandits_at_all_horizons():
    config = Horizon(actions=(3,), temperatures=(0.1, 0.5), input_dim=2, horizons=(2, 4), num_runs=2, batch_size=4)
    units = config.units()
    assert sorted(map(len, horizon.groups(units))) == [2, 2]
    rows = [row for unit in units.values() for row in horizon.run([unit], key=jr.key(0))[0]]
    assert len(rows) == 4 * 2 * 2 and all(0 <= row["lost"] <= 1 for row in rows)
    assert len(dec_horizon.ahead(rows)) == len(rows) // 2
    assert dec_horizon.draw(rows).axes


@pytest.mark.parametrize(("sign", "expected"), [(1, Verdict.HOLDS), (-1, Verdict.FAILS)])
def test_rules_are_compared_by_horizon_actions_and_noise(sign, expected):
    def more(actions, temperature, step):
        """Thompson sampling loses more at first, with many actions, and where there is little noise."""
        return sign * (0.2 * (1 - step / 60) + 0.001 * (actions - 10) - 0.1 * (temperature - 0.1))

    rows = [
        {
            "rule": rule,
            "num_actions": actions,
            "temperature": temperature,
            "seed": seed,
            "horizon": step,
            "lost": 0.3 + 0.001 * seed * (rule == "greedy") + (rule == "thompson") * more(actions, temperature, step),
        }
        for rule in ("thompson", "greedy")
        for actions in (10, 50)
        for temperature in (0.1, 0.5)
        for seed in range(4)
        for step in (10, 100)
    ]
    for claim in ("long", "short", "horizon", "actions", "noise"):
        assert verdict(f"dec_horizon-{claim}", rows) is expected


@pytest.mark.long
def test_sets_earn_no_more_than_the_truth():
    config = next(iter(REGISTRY["dec_sets"].at_tier("smoke").units().values()))
    config = replace(config, variant=variant_of("mlp", num_steps=2))
    (rows,) = sets.run([config], key=jr.key(0))
    assert len(rows) == len(config.copies) * config.num_problems
    for row in rows:
        assert max(row["joint"], row["marginal"], row["exact"], row["random"]) <= row["truth"] + 1e-6
        assert 1 - math.exp(-1) <= row["ratio"] <= 1 + 1e-6


def test_rules_that_never_get_there_are_not_compared():
    needed = [
        {"row": "needed", "acquisition": name, "seed": seed, "labels": math.inf, "budget": 100}
        for name in ("uniform", "bald")
        for seed in range(3)
    ]
    assert math.isnan(judge(CLAIMS["dec_active-bald"], needed).measurement.value)
    reached = [{**row, "labels": 50 + row["seed"]} if row["acquisition"] == "bald" else row for row in needed]
    assert judge(CLAIMS["dec_active-bald"], reached).measurement.value == pytest.approx(-49)


def test_a_bandit_of_fashion_mnist_needs_its_files(tmp_path):
    config = bandit_of(bandit="fashion", size=replace(SIZE, pooling=14))
    with pytest.raises(ReproduceError, match="`--data-dir` must be given; expected a folder fashion-mnist"):
        bandits_fashion.run([config], key=jr.key(0), inputs=Inputs())
    with pytest.raises(ReproduceError, match="fashion_mnist cannot be read from .* Expected a folder fashion-mnist"):
        bandits_fashion.run([config], key=jr.key(0), inputs=Inputs(data_dir=tmp_path))
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (20, 28, 28)).astype(np.uint8)
    for name, array in (("images-idx3", images), ("labels-idx1", np.arange(20, dtype=np.uint8) % 10)):
        (folder / f"t10k-{name}-ubyte").write_bytes(idx(array))
    (rows,) = bandits_fashion.run([config], key=jr.key(0), inputs=Inputs(data_dir=tmp_path))
    assert {row["bandit"] for row in rows} == {"fashion"}
    assert all(0 <= row["regret"] <= SIZE.num_steps for row in rows)
    assert dec_bandits.draw(rows).axes[0].get_title() == "Fashion-MNIST, equal updates"


@pytest.mark.parametrize("label", [variant.label for variant in bandit_variants((3,), 3)])
def test_agents_that_learn_digits_have_a_small_decay(label):
    (variant,) = [own for own in bandit_variants((3,), 3) if own.label == label]
    tuned, own = decision_agents.sgd_agent(variant), decision_agents.sgd_agent(active.on_digits(variant))
    assert own.decay == pytest.approx(tuned.decay / 40)
    assert replace(own, decay=tuned.decay) == tuned


@pytest.mark.long
def test_an_epinet_learns_to_read_digits():
    config = ActiveLearning(acquisitions=("uniform",), num_runs=1, num_rounds=1, per_class=10, num_steps=300).units()
    (rows,) = active.run(list(config.values()), key=jr.key(0))
    assert max(row["accuracy"] for row in rows if row["row"] == "round") > 0.7
