"""Figures on the shipped CIFAR-10 bank: rows of a small run, statistics over networks and blocks."""

import dataclasses

import jax.random as jr
import numpy as np
import pytest

from reproduce.configs.banked import Folds, StoredEpinet
from reproduce.configs.cifar_bank import CifarScaling, StoredNetworks
from reproduce.configs.cifar_head import BANK, CifarHead, Halves, NearImages, ShiftedHead
from reproduce.experiments import cifar_bank, cifar_head, cifar_near, cifar_shift
from reproduce.experiments.cifar_bank import network_parameters, subsets
from reproduce.experiments.cifar_head import Halved, log_loss, log_softmax
from reproduce.experiments.cifar_near import near_images
from reproduce.experiments.cifar_people import head_losses, particle_losses
from reproduce.experiments.replication_human import draw_labels
from reproduce.experiments.replication_images import shifts
from reproduce.registry import REGISTRY
from reproduce.stats import NETWORKS, where
from reproduce.style import style_context

pytestmark = pytest.mark.once

FEW = StoredNetworks(sizes=((20, 3), (56, 1)), num_bases=1)
RECIPE = StoredEpinet(index_dim=3, hidden=(4,), num_steps=2, batch_size=8)
SCALING = CifarScaling(
    networks=FEW,
    folds=Folds(num_tuning=20, tuning_samples=4, temperatures=(0.7, 1.0, 2.4), limit=200),
    ensemble_sizes=(2, 3),
    num_subsets=2,
    recipes=(("paper", RECIPE), ("released", dataclasses.replace(RECIPE, prior_scale=4.0))),
    num_samples=1000,
)


def rows_of(module, config):
    units = config.units()
    assert [name for group in module.groups(units) for name in group] == list(units)
    return [row for rows in module.run(list(units.values()), key=jr.key(0)) for row in rows]


def test_networks_have_the_sizes_of_the_authors_code():
    assert [network_parameters(depth) for depth in (32, 44, 56)] == [464_154, 658_586, 853_018]


def test_subsets_are_random_and_the_largest_is_all():
    found = subsets(5, 2, 3, key=jr.key(0))
    assert all(len(set(own.tolist())) == 2 for own in found) and len(found) == 3
    assert [own.tolist() for own in subsets(5, 5, 3, key=jr.key(0))] == [[0, 1, 2, 3, 4]]


def test_figure_10_reads_real_networks_and_is_drawn():
    rows = rows_of(cifar_bank, SCALING)
    blocks = SCALING.folds.num_folds * SCALING.folds.blocks_per_fold
    assert len(where(rows, agent="resnet", tuned=True)) == 4 * blocks
    assert len(where(rows, agent="ensemble", size=2, tuned=True)) == 2 * blocks
    assert len(where(rows, agent="epinet", recipe="paper", fitted="train", tuned=False)) == 2 * blocks
    base, head = (NETWORKS.mean(where(rows, agent=agent, tuned=True), "joint") for agent in ("resnet", "pitman-yor"))
    assert head.value < base.value / 2
    # Real networks: an ensemble of three is better than each.
    ensemble = where(rows, agent="ensemble", size=3, tuned=False)
    assert NETWORKS.difference(ensemble, where(rows, agent="resnet", size=20, tuned=False), "joint", "joint").value < 0
    with style_context():
        assert len(REGISTRY["fig10"].draw(rows).axes) == 3


def test_the_head_keeps_the_marginals_of_real_networks_and_is_drawn():
    config = CifarHead(
        networks=FEW,
        halves=Halves(num_tuning=40, blocks=2, temperatures=(1.0, 2.4), limit=120),
        alphas=(0.001, 0.1),
        taus=(1, 10),
        ensemble_sizes=(3,),
        sampled_alphas=(0.2,),
        stretches=(1.0,),
        num_sets=1,
        sample_counts=(4, 1000),
    )
    rows = rows_of(cifar_head, config)
    for row in where(rows, agent="exact head", tau=1):
        assert row["joint"] == pytest.approx(row["base_marginal"], abs=1e-6)
    for row in where(rows, agent="exact head", alpha=0.001):
        assert row["joint"] == pytest.approx(2 * row["marginal"], rel=0.02)
    excess = [
        np.mean([row["marginal"] - row["base_marginal"] for row in where(rows, num_samples=count, tuned=True)])
        for count in (4, 1000)
    ]
    assert excess[0] > abs(excess[1])
    with style_context():
        assert len(REGISTRY["rep_head"].draw(rows).axes) == 3


def test_near_pairs_are_judged_images_and_the_control_shares_none_of_them():
    config = NearImages(
        networks=FEW,
        halves=Halves(num_tuning=40, blocks=2, temperatures=(1.0, 2.4), limit=240),
        ensemble_sizes=(3,),
        recipes=(("released", RECIPE),),
        length_scales=(3.0,),
        num_samples=20,
    )
    halved = Halved(config.halves, key=jr.key(0))
    images = near_images(config, halved)
    pairs = {kind: {tuple(pair) for pair in places.reshape(-1, 2).tolist()} for kind, places in images.items()}
    assert len(set(images["nearest"].tolist())) == len(images["nearest"]) and set(images["nearest"]) <= set(halved.test)
    assert set(images["nearest"]) == set(images["other"]) and not pairs["nearest"] & pairs["other"]
    rows = rows_of(cifar_near, config)
    near, other = (np.mean([row["same_class"] for row in where(rows, pairs=kind)]) for kind in ("nearest", "other"))
    assert near > 0.6 > 0.4 > other
    with style_context():
        assert REGISTRY["rep_near"].draw(rows).axes


def test_shifted_and_augmented_images_have_every_agent_and_are_drawn():
    names = ("resnet20_00", "resnet20_01")
    config = ShiftedHead(
        size=2,
        num_bases=1,
        bank=dataclasses.replace(BANK, num_shifted=4, num_dyads=4),
        length_scales=(0.3, 3.0),
        num_samples=50,
        shifted_blocks=2,
        dyad_blocks=2,
    )
    rng = np.random.default_rng(0)

    def seen(count):
        logits = rng.normal(size=(count, 2, 10)).astype(np.float32)
        return cifar_shift.Seen(logits, logits, rng.normal(size=(2, count, 64)), rng.integers(0, 10, count))

    shifted, clean, dyads = seen(4 * len(shifts())), seen(4), seen(20)
    rows = cifar_shift._shifted_rows(config, names, shifted, clean)
    assert len(rows) == 2 * (2 + len(shifts())) * 6
    own = where(rows, agent="network", network=names[1], shift="mean")
    # Ten labels of a pair are ten times as hard for who takes them to be independent.
    np.testing.assert_allclose([row["joint"] for row in own], [10 * row["marginal"] for row in own], rtol=1e-4)
    expected = np.mean([row["joint"] for row in rows if row["agent"] == "ensemble" and row["strength"] > 0])
    assert NETWORKS.mean(where(rows, agent="ensemble", shift="mean"), "joint").value == pytest.approx(expected)
    # Whoever takes the ensemble's mean prediction has its marginal loss.
    for kind in ("ensemble", "ensemble + head"):
        values = [row["marginal"] for row in where(rows, agent=kind)]
        np.testing.assert_allclose(values, [row["marginal"] for row in where(rows, agent="ensemble")], rtol=1e-4)
    drawn = cifar_shift._augmented_rows(config, names, dyads, key=jr.key(0))
    assert len(drawn) == 2 * (1 + 2 + 1 + 2)
    independent = where(drawn, agent="network")
    np.testing.assert_allclose(
        [row["joint"] for row in independent], [10 * row["marginal"] for row in independent], rtol=1e-5
    )
    with style_context():
        assert len(REGISTRY["rep_shift"].draw([*rows, *drawn]).axes) == 2


def test_labels_of_people_are_scored_as_independent_at_share_one():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(10), size=4)
    drawn = draw_labels(shares, 10, rng)
    logits = rng.normal(size=(4, 10)).astype(np.float32)
    independent = particle_losses(log_softmax(logits)[:, None], drawn)
    np.testing.assert_allclose(head_losses(logits, drawn, 1.0), independent, rtol=1e-5)
    assert np.all(head_losses(logits, drawn, 0.5) != independent)
    expected = -np.log(np.exp(logits[0, 3]) / np.exp(logits[0]).sum())
    assert log_loss(logits[:1], np.array([3]), 1.0) == pytest.approx(expected, rel=1e-5)


def table(values, first=0):
    return [
        {"network": f"n{first + place}", "block": block, "loss": value}
        for place, own in enumerate(values)
        for block, value in enumerate(own)
    ]


def test_both_networks_and_blocks_add_to_the_error():
    found = NETWORKS.mean(table([[0.0, 2.0], [4.0, 6.0]]), "loss")
    # Means over networks are 2 and 4 by block, means over blocks 1 and 5 by network: errors of 1 and 2.
    assert found == (3.0, pytest.approx(np.hypot(1.0, 2.0)))
    assert NETWORKS.mean(table([[0.0, 2.0]]), "loss") == (1.0, 1.0)


def test_networks_that_both_have_are_paired():
    first, second = table([[1.0, 2.0], [5.0, 6.0]]), table([[0.0, 1.0], [4.0, 5.0], [9.0, 9.0]])
    assert NETWORKS.difference(first, second, "loss", "loss") == (1.0, 0.0)
    assert NETWORKS.ratio(first, second, "loss").value == pytest.approx(3.5 / 2.5)
    other = NETWORKS.difference(first, table([[0.0, 1.0]], first=7), "loss", "loss")
    assert other == (3.0, pytest.approx(2.0))
    with pytest.raises(ValueError, match="one row of each network and block"):
        NETWORKS.mean([*first, *first], "loss")
