"""The experiment on the ImageNet bank: scores against the library's, folds that share no image, rows of a small run."""

import dataclasses

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import Draws
from epinet_eqx.data import LinearLayer, PackedBank, pack_bank, stored_base
from epinet_eqx.epinet import attach
from epinet_eqx.metrics import dyadic_log_loss, marginal_log_loss
from reproduce.experiments import imagenet_bank
from reproduce.experiments.imagenet_bank import BankStudy, Lab, Recipe, epinet_outputs, particle_outputs, rows, score

pytestmark = pytest.mark.once

STUDY = BankStudy(
    networks=("first", "second"),
    ensembles=(("first", "second"),),
    recipe=Recipe(index_dim=3, hidden=(4,), num_steps=3, batch_size=8),
    num_tuning=8,
    num_masks=2,
    temperatures=(0.7, 1.0),
    counts=(1, 4),
    alphas=(0.5, 1.0),
    dropout_rates=(0.1, 0.3),
)


@pytest.fixture(scope="module")
def banks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("banks")
    found = {}
    for number, name in enumerate(STUDY.networks):
        rng = np.random.default_rng(number)
        linear = LinearLayer(rng.normal(size=(5, 6)), rng.normal(size=5))
        labels = np.random.default_rng(9)
        splits = {
            split: {"features": rng.normal(size=(size, 6)), "y": labels.integers(0, 5, size)}
            for split, size in (("val", 60), ("train", 20))
        }
        pack_bank(folder / name, splits, linear=linear, compress=False)
        found[name] = PackedBank(folder / name)
    return found


@pytest.fixture
def lab(banks, monkeypatch):
    monkeypatch.setattr(imagenet_bank, "open_shipped", lambda dataset, name: banks[name])
    return Lab(STUDY, key=jr.key(0))


def test_scores_are_the_losses_of_the_library(lab):
    data = lab.bank("first").as_batch("val")
    example = {name: leaf[0] for name, leaf in data.x.items()}
    enn = attach(stored_base, out_size=5, index_dim=3, example=example, key=jr.key(1))
    draws = Draws.sample(enn.index, 4, key=jr.key(2))
    zs = draws.take(4, 0)
    marginal, joint = score(epinet_outputs(enn, zs), data, (1.0,)).at(0, (4,))
    np.testing.assert_allclose(marginal[0], marginal_log_loss(enn, data.x, data.y, draws).values, rtol=1e-4)
    np.testing.assert_allclose(joint[0], dyadic_log_loss(enn, data.x, data.y, draws).values, rtol=1e-4)


def test_a_single_network_has_a_joint_loss_of_tau_times_its_marginal_one(lab):
    data = lab.bank("first").as_batch("val")
    marginal, joint = score(particle_outputs, data, (1.0,)).at(0, (1,))
    assert joint.mean() == pytest.approx(10 * marginal.mean(), rel=1e-5)


def test_every_image_is_a_test_image_once_and_never_seen_before(lab):
    assert sorted(np.concatenate(lab.folds).tolist()) == list(range(60))
    data = lab.bank("first").as_batch("val")
    for fold in range(5):
        numbers = [set(np.asarray(part.i).tolist()) for part in lab.parts(data, fold)]
        assert [len(part) for part in numbers] == [40, 8, 12]
        assert len(set.union(*numbers)) == 60


def test_a_small_run_has_all_rows(lab):
    reported = []
    found = rows(dataclasses.replace(STUDY), key=jr.key(0), report=reported.extend)
    assert reported == found
    agents = {row["agent"] for row in found}
    assert agents == {"resnet", "ensemble", "epinet", "untrained epinet", "dropout on features", "pitman-yor"}
    assert {row["fitted_on"] for row in found if row["agent"] == "epinet"} == {"val", "train"}
    for row in found:
        assert np.isfinite([row["marginal"], row["joint"], row["error"]]).all()
    heads = [row for row in found if row["agent"] == "pitman-yor" and row["network"] == "first"]
    bases = [row for row in found if row["agent"] == "resnet" and row["network"] == "first"]
    assert heads[0]["joint"] < bases[0]["joint"]
    assert bool(jnp.isinf(heads[0]["num_samples"]))
