"""The ImageNet figures from the bank: heads against what they stand for, choices, units, drawings, augmented dyads."""

import dataclasses
import pathlib
import re
import types

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import Draws
from epinet_eqx.baselines import SNGP
from epinet_eqx.data import LinearLayer
from epinet_eqx.losses import Batch
from reproduce.aggregate import read_rows
from reproduce.artifacts import _imagenet
from reproduce.banks import AUGMENTED_NETWORK, AUGMENTED_TEMPERATURES, augmented_anchors, augmented_log_probs
from reproduce.configs.banked import Folds, StoredEpinet
from reproduce.configs.imagenet import NETWORKS, Ablation, Bank, BankPart, BankStudy, Heads
from reproduce.experiments import imagenet_augmented, imagenet_heads
from reproduce.experiments.banked import Split, bank_of
from reproduce.experiments.imagenet_ablation import changed
from reproduce.experiments.imagenet_costs import ensemble_cost, network_cost
from reproduce.experiments.imagenet_heads import FeatureDropout, PairPosterior, choose, paired
from reproduce.paths import REFERENCE
from reproduce.registry import REGISTRY
from reproduce.style import style_context

pytestmark = pytest.mark.once

HEADS = Heads(
    random_features=8, het_rank=2, het_samples=2, num_particles=2, num_steps=2, dropout_rates=(0.1,),
    ensemble_scales=(1.0,), capacity=StoredEpinet(index_dim=2, hidden=(4,), num_steps=2, batch_size=4),
)  # fmt: skip
FOLDS = Folds(num_tuning=8, tuning_samples=4, temperatures=(0.7, 1.0))
LINEAR = LinearLayer(np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32), np.zeros(5, np.float32))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 6)).astype(np.float32)
    logits = features @ LINEAR.weight.T
    y = rng.integers(0, 5, 60).astype(np.int32)
    return Batch({"features": features, "logits": logits}, y, np.arange(60, dtype=np.int32))


@pytest.fixture(scope="module")
def split():
    return Split(FOLDS, 60, key=jr.key(0))


def test_a_pair_has_the_covariance_that_drawn_weights_give(data, split, getkey):
    pairs = paired(data, split)
    pair = split.places[0][:2]
    assert np.asarray(pairs.x["second"])[pair].tolist() == [False, True]
    np.testing.assert_array_equal(np.asarray(pairs.x["partner"])[pair], np.asarray(data.x["features"])[pair[::-1]])
    sngp = SNGP(6, 5, num_features=8, key=getkey())
    sngp = sngp.with_gram(sngp.gram(jnp.asarray(data.x["features"])))
    project = imagenet_heads._Projected(sngp.random_features.value, sngp.root.value)
    enn = PairPosterior(project, jnp.ones((8, 5)))
    x = jax.tree.map(lambda leaf: jnp.asarray(leaf)[pair], pairs.x)
    _, roots = jax.vmap(enn.embed)(x)
    projected = jax.vmap(project)(x["features"])
    expected = projected @ projected.T
    for place in range(5):
        np.testing.assert_allclose(roots[:, :, place] @ roots[:, :, place].T, expected, rtol=2e-4)


def test_dropout_of_features_keeps_their_mean(data, getkey):
    enn = FeatureDropout(imagenet_heads._linear(LINEAR), 0.2)
    x = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), data.x)
    drawn = enn.heads(enn.embed(x), enn.index.sample_many(4000, key=getkey()))
    np.testing.assert_allclose(drawn.mean(axis=0), x["logits"], atol=5 * float(drawn.std() / 4000**0.5))


@pytest.mark.parametrize("name", sorted(imagenet_augmented.BASELINES))
def test_a_baseline_of_augmented_draws_is_coherent_over_inputs(name, data, split, getkey):
    parts = split.parts(data, 0)
    make = imagenet_augmented.MAKE.get(name) or imagenet_heads.HEADS[name].make
    made = make(HEADS, LINEAR, parts, getkey())
    (*_, enn) = made
    features = jnp.asarray(data.x["features"])[jnp.array([0, 1, 0, 2])]
    x = {"features": features, "logits": features @ LINEAR.weight.T}
    drawn = jax.vmap(lambda one: enn.heads(enn.embed(one), enn.index.sample_many(500, key=jr.key(3))))(x)
    np.testing.assert_allclose(drawn[0], drawn[2], rtol=1e-5)
    # What differs between indices is the head's doing.
    assert float(jnp.std(drawn, axis=1).max()) > 1e-3
    if name == "sngp":
        projected = jax.vmap(enn.enn.embed)(features).projected
        variance = jnp.sum(projected**2, axis=1)
        np.testing.assert_allclose(drawn.mean(axis=1), x["logits"], atol=5 * float(variance.max() / 500) ** 0.5)
        np.testing.assert_allclose(drawn.var(axis=1).mean(axis=1), variance, rtol=0.2)


@pytest.mark.parametrize("name", sorted(imagenet_heads.HEADS))
def test_every_head_has_finite_logits_and_a_size(name, data, split, getkey):
    parts = split.parts(paired(data, split), 0)
    head = imagenet_heads.HEADS[name]
    for enn in head.make(HEADS, LINEAR, parts, getkey()):
        draws = Draws.all(enn.index) if enn.index.support() is not None else Draws.sample(enn.index, 3, key=getkey())
        x = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), parts.test.x)
        found = enn.heads(enn.embed(x), draws.take(draws.num_samples, 0))
        assert found.shape == (draws.num_samples, 5) and bool(jnp.isfinite(found).all())
    assert head.parameters(HEADS, 6, 5) >= 0


ROOT = pathlib.Path(__file__).parent.parent
ADDED = re.findall(r"```python\n# in (reproduce/\S+)\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)


def test_a_baseline_is_added_by_two_files(data, split, monkeypatch):
    """The example of CONTRIBUTING.md: an entry of one file is judged, a name in another is computed and drawn."""
    (head_path, head), (figure_path, names) = ADDED
    monkeypatch.setattr(imagenet_heads, "HEADS", dict(imagenet_heads.HEADS))
    assert (ROOT / head_path).samefile(imagenet_heads.__file__)
    exec(head, dict(vars(imagenet_heads)))
    monkeypatch.setattr(imagenet_heads, "bank_of", lambda *_: types.SimpleNamespace(linear=LINEAR))
    part = BankPart(bank=Bank(folds=FOLDS, heads=HEADS), part="head-isotropic", networks=("resnet50",))
    own = imagenet_heads.head_rows(part, split, data, 100, key=jr.key(0))
    assert {row["agent"] for row in own} == {"isotropic"} and {row["parameters"] for row in own} == {101}
    assert all(np.isfinite(row["joint"]) for row in own)
    source, changed = re.subn(r"^_HEADS = .*\n", names, (ROOT / figure_path).read_text(), flags=re.MULTILINE)
    assert changed == 1
    figure = types.ModuleType("fig06_with_one_more")
    figure.__package__ = "reproduce.artifacts"
    exec(source, vars(figure))
    assert "head-isotropic-resnet50" in figure.ARTIFACT.tiers["laptop"].units()
    with style_context():
        drawn = figure.draw([*read_rows(REFERENCE / "laptop" / "fig06.csv"), *own])
    assert "isotropic" in drawn.axes[0].get_legend_handles_labels()[1]


def test_a_head_that_spoils_the_marginal_loss_is_not_chosen(data, split, getkey):
    tuning = split.parts(paired(data, split), 0).tuning
    good, spoiled = (PairPosterior(lambda x: x, jnp.full((6, 5), variance)) for variance in (1e-6, 1e4))
    enn, temperature, _ = choose([spoiled, good], tuning, FOLDS, 4, key=getkey())
    assert enn is good and temperature in FOLDS.temperatures


def test_an_ablation_changes_one_field():
    recipe = StoredEpinet()
    for row, values in Ablation().values.items():
        for value in values if row != "temperature" else ():
            new = changed(recipe, row, value)
            assert sum(a != b for a, b in zip(*map(dataclasses.astuple, (recipe, new)), strict=True)) == 1
    assert len(Ablation().parts) == 7


def test_units_are_of_networks_and_of_ensembles_that_grow():
    units = BankStudy(parts=("base", "ensemble"), ends_parts=("recommended",)).units()
    assert len(units) == 2 + 7 + 6
    assert [len(unit.networks) for name, unit in units.items() if name.startswith("ensemble")] == [2, 3, 4, 5, 6, 7]
    assert units["recommended-squeezenet1_1"] == BankPart(bank=Bank(), part="recommended", networks=("squeezenet1_1",))
    assert set(_imagenet.NAMES) == set(NETWORKS)


def test_costs_are_those_of_the_networks():
    found = network_cost("squeezenet1_1")
    assert found.parameters == 1_235_496 and found.flops == pytest.approx(0.7e9, rel=0.4)
    assert ensemble_cost(("squeezenet1_1",) * 2) == (2 * found.parameters, 2 * found.flops, 0.0)


def test_augmented_dyads_are_in_the_bank():
    bank, stored = bank_of("imagenet", AUGMENTED_NETWORK), augmented_log_probs()
    assert set(stored) == {(name, temperature) for name in NETWORKS for temperature in AUGMENTED_TEMPERATURES}
    augmented, anchors = bank.as_batch("augmented"), augmented_anchors()
    log_p = jax.nn.log_softmax(augmented.x["logits"] / 0.7)
    own = np.take_along_axis(np.asarray(log_p), np.asarray(augmented.y)[:, None], axis=1)[:, 0]
    assert np.abs(own - stored[AUGMENTED_NETWORK, 0.7]).mean() < 0.05
    # Ten draws of each pair have the labels of its two anchors.
    labels = np.asarray(bank.as_batch("val").y)[anchors].reshape(-1, 2)
    drawn = np.asarray(augmented.y).reshape(len(labels), -1)
    assert (drawn[:, :, None] == labels[:, None, :]).any(axis=2).all()
    assert len(set(anchors.tolist())) == len(anchors)


BANKED = [name for name, own in REGISTRY.items() if own.session == "imagenet" and own.from_scratch is not None]


@pytest.mark.parametrize("name", BANKED)
def test_a_figure_of_the_bank_has_accepted_numbers_of_it(name):
    own, path = REGISTRY[name], REFERENCE / "laptop" / f"{name}.csv"
    assert {line.split(",")[0] for line in path.read_text().splitlines()[1:]} == set(own.at_tier("laptop").units())
    assert "instead of" not in own.data
    assert own.draw(read_rows(path)).axes
