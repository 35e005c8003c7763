"""The image artifacts: data, recipes, means over seeds, claims, drawings, and a run of the smallest size."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import cost
from epinet_eqx.bayes import dropout_mlp
from epinet_eqx.epinet import attach
from epinet_eqx.networks import MLP
from reproduce import counting
from reproduce.claims import Verdict, judge
from reproduce.configs.images import ABLATION_ROWS, DIGITS, PAIRS, Part, Training, changed, tuned_value
from reproduce.experiments import image_costs, image_data, image_memory, image_scores, images
from reproduce.experiments.image_agents import Seed
from reproduce.experiments.image_lab import Lab
from reproduce.experiments.image_memory import MemoryBackend
from reproduce.inputs import Inputs
from reproduce.registry import REGISTRY
from reproduce.stats import SEEDS, mean_over, where

pytestmark = pytest.mark.once

_TRAINING = Training(epochs=1, batch_size=25)
TINY = dataclasses.replace(
    PAIRS,
    num_train=50,
    num_validation=20,
    num_test=20,
    sizes=(8,),
    training=_TRAINING,
    epinet=dataclasses.replace(PAIRS.epinet, index_dim=2, hidden=(4,), training=_TRAINING),
    ensemble_sizes=(1, 2),
    temperatures=(0.5, 2.0),
    sample_counts=(10, 1000),
    num_augmented=2,
    ablation=(("matched prior scale", (0.0,)), ("temperature", (0.5,))),
)


@pytest.mark.parametrize("row", ABLATION_ROWS)
def test_a_changed_recipe_differs_in_one_factor(row):
    recipe = changed(PAIRS.epinet, row, 3)
    assert tuned_value(recipe, row) == 3
    others = [other for other in ABLATION_ROWS if other != row]
    assert all(tuned_value(recipe, other) == tuned_value(PAIRS.epinet, other) for other in others)
    assert {row for row, _ in PAIRS.ablation} == set(ABLATION_ROWS)


@pytest.mark.parametrize("protocol", [PAIRS, DIGITS], ids=["pairs", "digits"])
def test_no_digit_of_a_test_image_is_seen_before(protocol):
    for seed in (0, 1):
        data = image_data.read_splits(protocol, seed, Inputs(), key=jr.key(0))
        width = data.image_shape[2] // 8
        seen = [
            {image[:, place].tobytes() for image in np.asarray(x).reshape(len(x), 8, -1, 8) for place in range(width)}
            for x in (data.train.x, data.test_batch.x, data.validation.x)
        ]
        assert not seen[1] & seen[0]
        assert not seen[1] & seen[2]
        assert data.test_batch.x.shape[0] == protocol.num_test


@pytest.mark.parametrize("kind", ["epinet", "dropout"])
def test_counted_operations_are_those_of_the_library(kind, getkey):
    if kind == "epinet":
        enn = attach(MLP(6, 3, (5,), key=getkey()), out_size=3, index_dim=2, key=getkey())
    else:
        enn = dropout_mlp(6, 3, (5,), key=getkey())
    _, counts = image_scores._cost(enn, jnp.zeros(6), [10, 40])
    expected = [cost(enn, jnp.zeros(6), num_samples=count, batch_size=100).flops for count in (10, 40)]
    assert counts == pytest.approx(expected, rel=1e-3)


def test_means_and_errors_over_seeds():
    assert mean_over([1.0, 3.0]) == pytest.approx((2.0, 1.0))
    assert math.isnan(mean_over([1.0])[1])
    rows = [{"seed": 0, "agent": "a", "joint": 1.0}, {"seed": 0, "agent": "a", "joint": 2.0}]
    with pytest.raises(ValueError, match="one row of each run"):
        SEEDS.mean(where(rows, agent="a"), "joint")


def scratch(name):
    """Return an image figure as it is computed without a bank."""
    return REGISTRY[name].from_scratch or REGISTRY[name]


def claim(name):
    (found,) = [own for own in scratch(name.partition("-")[0]).claims if own.id == name]
    return found


def row(agent, size, seed, joint, **more):
    exact = agent in ("resnet", "ensemble")
    return {"agent": agent, "size": size, "seed": seed, "joint": joint, "exact": exact, "num_samples": 1000, **more}


@pytest.mark.parametrize(("shift", "verdict"), [(-1.0, Verdict.HOLDS), (1.0, Verdict.FAILS)])
def test_the_ensemble_claim_is_paired_by_seed(shift, verdict):
    rows = [row("ensemble", size, seed, 5.0 + seed - size / 100) for size in (1, 100) for seed in (0, 1, 2)]
    rows += [row("epinet", 8, seed, 4.0 + seed + shift + 0.01 * seed) for seed in (0, 1, 2)]
    assert judge(claim("fig02-ensemble"), rows).verdict is verdict


def test_dropout_is_compared_at_both_numbers_of_indices():
    rows = [row("epinet", 8, seed, 2.0 + 0.01 * seed) for seed in (0, 1)]
    rows += [{**row("dropout", 8, seed, 3.0), "num_samples": 10} for seed in (0, 1)]
    rows += [row("dropout", 8, seed, 1.0) for seed in (0, 1)]
    assert judge(claim("fig06-dropout"), rows).verdict is Verdict.HOLDS
    assert judge(claim("fig06-dropout-equal"), rows).verdict is Verdict.FAILS


def test_baselines_share_no_network_and_are_computed_beside_the_rest():
    parts = ("bases", "baselines", "augmented", "augmented-baselines")
    configs = {f"{part}-{seed}": Part(protocol=TINY, part=part, seed=seed) for seed in (0, 1) for part in parts}
    assert images.groups(configs) == [
        [f"{part}-{seed}" for part in own] for seed in (0, 1) for own in (parts[::2], parts[1::2])
    ]


def test_a_seed_runs_and_is_drawn():
    parts = ("bases", "ensembles", "epinets", "grids")
    configs = [Part(protocol=TINY, part=part, seed=0) for part in parts]
    (group,) = images.groups({config.part: config for config in configs})
    assert group == list(parts)
    found = dict(zip(parts, images.run(configs, key=jr.key(0)), strict=True))
    # A single network predicts ten labels as well as ten times one.
    for own in found["bases"]:
        assert own["joint"] == pytest.approx(10 * own["marginal"], rel=1e-5)
    # The smallest base is the ensemble of one.
    assert found["ensembles"][0]["joint"] == pytest.approx(found["bases"][0]["joint"])
    # Two particles cost twice one, and operations are linear in the number of indices.
    assert found["ensembles"][1]["flops"] == pytest.approx(2 * found["ensembles"][0]["flops"], rel=1e-3)
    few, many = (own["flops"] for own in found["epinets"])
    assert many > 10 * few
    shown = [r for part in ("bases", "ensembles", "epinets") for r in found[part]]
    assert all(np.isfinite(r["joint"]) and r["flops"] > 0 for r in shown)
    assert scratch("fig02").draw(shown).axes
    assert scratch("fig06").draw(shown).axes
    assert scratch("fig07").draw(found["grids"]).axes
    assert scratch("fig08").draw([{**r, "augmented": r["joint"]} for r in shown if r["num_samples"] != 10]).axes
    assert scratch("fig13").draw(shown).axes
    ablated = [r for r in shown if (r["agent"], r["size"], r["num_samples"]) == ("epinet", 8, 1000)]
    variants = [("default", 0.0), ("temperature", 0.5)]
    assert scratch("fig14").draw([{**r, "row": row, "value": value} for r in ablated for row, value in variants]).axes


def test_a_network_is_trained_once_and_does_not_depend_on_what_is_asked_first():
    seed = Seed(protocol=TINY, number=1, key=jr.key(0))
    first, second = (Lab(backend=MemoryBackend(seed)) for _ in range(2))
    assert first.base(12) is first.base(12)
    second.ensemble(2)
    assert (first.base(12).layers[0].weight == second.base(12).layers[0].weight).all()


def test_networks_are_kept_and_found_again(tmp_path, monkeypatch):
    seed = Seed(protocol=TINY, number=0, key=jr.key(0), inputs=Inputs(networks=tmp_path))
    first = Lab(backend=MemoryBackend(seed))
    trained = [first.default_epinet(8).enn, first.baseline("mimo").enn, first.head(8).enn]
    monkeypatch.setattr(image_memory, "fit", None)
    monkeypatch.setattr(image_memory, "fit_ensemble", None)
    second = Lab(backend=MemoryBackend(seed))
    found = [second.default_epinet(8).enn, second.baseline("mimo").enn, second.head(8).enn]
    for old, new in zip(jax.tree.leaves(trained), jax.tree.leaves(found), strict=True):
        assert not eqx.is_array(old) or jnp.array_equal(old, new)
    # Another recipe is another network.
    with pytest.raises(TypeError, match="not callable"):
        second.epinet(8, dataclasses.replace(TINY.epinet, prior_scale=2.0))


def test_a_part_is_there_before_the_next_is_computed(monkeypatch):
    def fail(lab):
        raise KeyboardInterrupt

    monkeypatch.setitem(images._PARTS, "bases", fail)
    configs = [Part(protocol=TINY, part=part, seed=0) for part in ("grids", "bases")]
    found = images.run(configs, key=jr.key(0))
    assert next(found)
    with pytest.raises(KeyboardInterrupt):
        next(found)


def test_a_plan_of_a_laptop_counts_all_networks():
    configs = [Part(protocol=TINY, part=part, seed=0) for part in ("bases", "epinets", "baselines")]
    planned = images.plan(configs, inputs=Inputs(), key=jr.key(0))
    names = ["particle 8", "epinet 8", "dropout", "mimo", "sngp", "het"]
    assert [own.name for own in planned] == names
    assert all(own.steps == 2 for own in planned)
    assert counting.count(planned[0].step, planned[0].arguments).flops > 0


def test_other_data_run_the_same_protocol(tmp_path):
    rng = np.random.default_rng(5)
    for prefix, count in (("train", 40), ("t10k", 12)):
        for kind, header, content in (
            ("images-idx3", (count, 28, 28), rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)),
            ("labels-idx1", (count,), rng.integers(0, 10, count, dtype=np.uint8)),
        ):
            sizes = b"".join(size.to_bytes(4, "big") for size in header)
            path = tmp_path / f"{prefix}-{kind}-ubyte"
            path.write_bytes(bytes([0, 0, 8, len(header)]) + sizes + content.tobytes())
    protocol = dataclasses.replace(TINY, dataset="fashion_mnist", num_train=25, num_validation=10)
    data = image_data.read_splits(protocol, 0, Inputs(data_dir=tmp_path), key=jr.key(0))
    assert (data.train.x.shape, data.num_classes) == ((25, 784), 10)
    assert not set(data.train.i.tolist()) & set(data.validation.i.tolist())
    assert data.test_batch.x.shape == (12, 784)
    (rows,) = images.run(
        [Part(protocol=protocol, part="bases", seed=0)], inputs=Inputs(data_dir=tmp_path), key=jr.key(0)
    )
    assert np.isfinite(rows[0]["joint"])


def test_counted_costs_are_those_of_the_contraction_with_the_index():
    config = dataclasses.replace(next(iter(REGISTRY["fig12_counts"].at_tier("smoke").units().values())), image_size=64)
    rows = image_costs.run(config, key=jr.key(0))
    alone, batch = ([row for row in rows if row["batch_size"] == size] for size in config.batch_sizes)
    per_index = (alone[-1]["flops"] - alone[0]["flops"]) / (alone[-1]["num_samples"] - alone[0]["num_samples"])
    # The last layers of the learnable part and of the prior that matches it, contracted with the index.
    recipe = config.epinet
    contraction = 2 * 2 * recipe.hidden[0] * recipe.index_dim * config.num_classes
    assert contraction < per_index < 1.1 * contraction
    # Images of a batch share it.
    shared = (batch[-1]["flops"] - batch[0]["flops"]) / (alone[-1]["flops"] - alone[0]["flops"])
    assert 0.01 < shared < 0.1
    assert rows[0]["base_parameters"] == pytest.approx(25.6e6, rel=0.01) and rows[0]["parameters"] < 40e6
