"""Folds of shipped banks: images never seen before they are judged, losses of the library, rows of blocks."""

import dataclasses
import json
import types

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx.data import LinearLayer, PackedBank, pack_bank
from epinet_eqx.weights import PRETRAINED
from reproduce import banks
from reproduce.configs.banked import Folds, StoredEpinet
from reproduce.experiments.banked import Chosen, Split, cooled, judged_rows, pitman_yor_rows, train_epinet
from reproduce.experiments.scoring import StoredParticles, best_place, particles_batch
from reproduce.stats import BLOCKS, mean_over, where

pytestmark = pytest.mark.once

FOLDS = Folds(num_tuning=8, tuning_samples=4, temperatures=(0.7, 1.0))
RECIPE = StoredEpinet(index_dim=3, hidden=(4,), num_steps=3, batch_size=8)


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    rng = np.random.default_rng(0)
    linear = LinearLayer(rng.normal(size=(5, 6)), rng.normal(size=5))
    splits = {"val": {"features": rng.normal(size=(60, 6)), "y": rng.integers(0, 5, 60)}}
    path = tmp_path_factory.mktemp("bank") / "own.npz"
    pack_bank(path, splits, linear=linear, compress=False)
    return PackedBank(path)


@pytest.fixture
def split():
    return Split(FOLDS, 60, key=jr.key(0))


def test_every_image_is_judged_once_and_never_seen_before(bank, split):
    assert sorted(np.concatenate(split.places).tolist()) == list(range(60))
    for fold in range(5):
        numbers = [set(np.asarray(part.i).tolist()) for part in split.parts(bank.as_batch("val"), fold)]
        assert [len(part) for part in numbers] == [40, 8, 12]
        assert len(set.union(*numbers)) == 60


def test_rows_are_means_over_blocks_of_the_pairs_of_a_fold(bank, split):
    data = particles_batch([bank.as_batch("val")])
    rows = judged_rows(split, data, lambda *_: StoredParticles(1), counts=(1,), key=jr.key(1), agent="resnet")
    plain, tuned = where(rows, tuned=False), where(rows, tuned=True)
    assert len(plain) == len(tuned) == 10 and sorted({row["block"] for row in plain}) == list(range(10))
    # A single network: the joint loss is tau times the marginal one, in each block.
    for row in rows:
        assert row["exact"] and row["joint"] == pytest.approx(10 * row["marginal"], rel=1e-5)
    log_p = jax.nn.log_softmax(bank.as_batch("val").x["logits"])
    expected = -np.take_along_axis(np.asarray(log_p), np.asarray(data.y)[:, None], axis=1)[:, 0]
    first = split.places[3][:6]
    assert plain[6]["block"] == 6
    assert plain[6]["marginal"] == pytest.approx(expected[first].mean(), rel=1e-5)


def test_an_epinet_has_a_row_for_each_number_of_indices(bank, split):
    data = bank.as_batch("val")
    recipe = dataclasses.replace(RECIPE, base_temperature=0.8)
    rows = judged_rows(
        split,
        cooled(data, 0.8),
        lambda fold, parts: train_epinet(parts.training, recipe, key=jr.key(fold)),
        counts=(1, 4),
        tuned=False,
        num_folds=2,
        key=jr.key(1),
        agent="epinet",
        seed=0,
    )
    assert [row["num_samples"] for row in rows[:4]] == [1, 1, 4, 4]
    assert {row["block"] for row in rows} == {0, 1, 2, 3}
    for row in where(rows, num_samples=1):
        assert row["joint"] == pytest.approx(10 * row["marginal"], rel=1e-4)
    np.testing.assert_allclose(cooled(data, 0.8).x["logits"], data.x["logits"] / 0.8, rtol=1e-6)


def test_what_is_chosen_is_judged_at_its_own_temperature_and_says_so(bank, split):
    data = particles_batch([bank.as_batch("val")])
    one, key = StoredParticles(1), jr.key(1)
    found = judged_rows(split, data, lambda fold, _: Chosen(one, 0.7, {"scale": fold}), counts=(1,), key=key, agent="a")
    assert [row["scale"] for row in found] == [row["block"] // 2 for row in found] and len(found) == 10
    fixed = judged_rows(split, data, lambda *_: one, counts=(1,), fixed=(0.7,), tuned=False, key=key, agent="a")
    assert [{**row, "scale": own["scale"], "tuned": True} for row, own in zip(fixed, found, strict=True)] == found


def test_an_untrained_epinet_is_the_one_that_training_begins_with(bank):
    data = bank.as_batch("val")
    untrained = train_epinet(data, dataclasses.replace(RECIPE, num_steps=0), key=jr.key(3))
    trained = train_epinet(data, RECIPE, key=jr.key(3))
    for first, second in zip(jax.tree.leaves(untrained.priors), jax.tree.leaves(trained.priors), strict=True):
        np.testing.assert_array_equal(first, second)
    pairs = zip(jax.tree.leaves(untrained.learnable), jax.tree.leaves(trained.learnable), strict=True)
    assert not all(jnp.array_equal(first, second) for first, second in pairs)


def test_the_pitman_yor_head_is_the_base_at_share_one(bank, split):
    data = bank.as_batch("val")
    rows = pitman_yor_rows(split, data, alphas=(0.2, 1.0), agent="pitman-yor", seed=0)
    for row in where(rows, alpha=1.0):
        assert row["joint"] == pytest.approx(10 * row["marginal"], rel=1e-4)
    shared = [BLOCKS.mean(where(rows, alpha=alpha), "marginal").value for alpha in (0.2, 1.0)]
    assert shared[0] == pytest.approx(shared[1], rel=1e-6)
    assert BLOCKS.difference(where(rows, alpha=0.2), where(rows, alpha=1.0), "joint", "joint").value < 0


def test_the_best_setting_has_marginals_that_are_no_worse():
    marginal, joint = np.array([1.2, 1.0, 0.9]), np.array([3.0, 5.0, 4.0])
    assert best_place(marginal, joint, limit=1.0) == 2
    assert best_place(marginal, joint, limit=1.2) == 0
    # Where none is within the limit, the lowest one; what is not a number is never chosen.
    assert best_place(marginal, joint, limit=0.5) == 2
    assert best_place(np.array([np.nan, 1.0]), np.array([np.nan, 5.0]), limit=0.5) == 1


def test_seeds_of_a_block_are_averaged_before_blocks_are_compared():
    rows = [
        {"block": block, "seed": seed, "joint": block + 10.0 * seed * (-1) ** block}
        for block in range(3)
        for seed in range(2)
    ]
    assert BLOCKS.mean(rows, "joint") == mean_over([5.0, -4.0, 7.0])


@pytest.fixture
def photographs(tmp_path):
    """A folder of a thousand images that no one decodes, one of each class."""
    for name in ("val_0", "train_like"):
        arrays = {"data": np.zeros(1000, np.uint8), "offsets": np.arange(1001), "labels": np.arange(1000)}
        np.savez(tmp_path / f"{name}.npz", **arrays)
    return tmp_path


def refuse(name):
    """Say what a registry that cannot be reached says."""
    raise OSError(f"{name} could not be downloaded")


def test_a_bank_is_made_of_the_networks_that_can_be_had(photographs, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    layer = types.SimpleNamespace(weight=rng.normal(size=(1000, 4)), bias=np.zeros(1000))
    features = rng.normal(size=(1000, 4))
    rows = {"features": features, "logits": features @ layer.weight.T, "y": np.arange(1000)}
    own = lambda name: (types.SimpleNamespace(linear=layer), None) if name == "squeezenet1_1" else refuse(name)  # noqa: E731
    monkeypatch.setattr(banks, "pretrained", own)
    monkeypatch.setattr(banks, "outputs", lambda *_: rows)
    monkeypatch.setattr(banks, "_pack_augmented", lambda *_: None)
    banks.make_imagenet(photographs, photographs, photographs / "bank")
    assert list(json.loads((photographs / "bank" / "bank.json").read_text())["networks"]) == ["squeezenet1_1"]
    assert PackedBank(photographs / "bank" / "squeezenet1_1.npz").splits == {"val": 1000, "train": 1000}
    assert capsys.readouterr().err.count("is left out: ") == len(PRETRAINED) - 1


def test_no_network_at_all_is_a_sentence(photographs, monkeypatch, capsys):
    monkeypatch.setattr(banks, "pretrained", refuse)
    with pytest.raises(OSError, match="No bank was made: no network could be had"):
        banks.make_imagenet(photographs, photographs, photographs / "bank")
    assert capsys.readouterr().err.count("could not be downloaded") == len(PRETRAINED)
