"""The replication on real CIFAR-10, on made-up images and untrained networks of the smallest depth."""

import dataclasses
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import save_file

from epinet_eqx import Draws, Tempered
from epinet_eqx.data import stored_base
from epinet_eqx.epinet import attach
from epinet_eqx.losses import Batch
from epinet_eqx.metrics import log_losses
from epinet_eqx.networks import ResNet, cifar_resnet
from epinet_eqx.weights._load import named_layers
from reproduce import aggregate
from reproduce.claims import judge
from reproduce.configs.replication import COLD, BankConfig, Networks, Piece, Recipe, Replication, Study
from reproduce.errors import ReproduceError
from reproduce.experiments import replication, replication_bank
from reproduce.experiments.replication_human import _rank_correlation, draw_labels
from reproduce.experiments.replication_images import images_of, shifts
from reproduce.experiments.replication_lab import Lab, count_parameters
from reproduce.experiments.replication_rows import Bench, stored
from reproduce.experiments.scoring import StoredParticles, losses_of
from reproduce.inputs import Inputs
from reproduce.record import Record, plain, write_csv
from reproduce.registry import REGISTRY
from reproduce.stats import BASES
from reproduce.style import style_context

pytestmark = pytest.mark.once

DATA = pathlib.Path(__file__).parents[2] / "shared" / "data"
SMALL = {"index_dim": 2, "hidden": (4,), "epochs": 1, "batch_size": 20, "num_index_samples": 2}
COLDER = {"standardized": True, "unit": True, "tempered_base": True, "mirrored": True}
STUDY = Study(
    bank=BankConfig(
        networks=(
            Networks(depth=8, test=3, train=2, augmented=1, dyads=3, shifted=3),
            Networks(depth=14, test=2, train=1),
        ),
        num_test=40,
        num_train=40,
        num_dyads=20,
        num_shifted=10,
    ),
    num_tuning=12,
    temperatures=(0.5, 1.0, 2.0),
    cold_temperatures=(0.3, 1.0),
    deviations=(0.5, 1.5),
    taus=(1, 10, 30),
    sample_counts=(10, 50, 1000),
    ensemble_sizes=(1, 2, 3),
    num_subsets=2,
    recipes=(
        ("released", Recipe(prior_scale=4.0, **SMALL)),
        ("paper", Recipe(prior_scale=1.0, conv_scale=1.0, **SMALL)),
        ("strict", Recipe(prior_scale=2.0, **COLDER, **SMALL)),
        ("cold", Recipe(prior_scale=2.0, **COLDER, **SMALL, allowance=0.02)),
    ),
    num_controls=1,
    factors=(("prior_scale", (0.0,)), ("features", ("all",)), ("mirrored", (False,)), ("augmented", (True,))),
)


def marks_of(*parts):
    """Tests of parts with many heads take minutes."""
    return pytest.mark.long if {"controls", "ablation", "dyads", "human", "shifts"} & set(parts) else ()


def write_network(path: pathlib.Path, depth: int, rng: np.random.Generator) -> None:
    """Write an untrained network as PyTorch's CIFAR repositories name its tensors."""
    network, _ = cifar_resnet(depth, key=jr.key(0))
    tensors = {}
    for name, layer in named_layers(network, "cifar").items():
        shape = layer.weight.shape
        if len(shape) == 4:
            kernel = rng.standard_normal((shape[3], shape[2], *shape[:2])) / math.sqrt(math.prod(shape[:3]))
            tensors[f"{name}.weight"] = kernel
        elif len(shape) == 2:
            tensors |= {f"{name}.weight": rng.standard_normal(shape), f"{name}.bias": rng.standard_normal(shape[0])}
        else:
            tensors |= {f"{name}.weight": np.ones(shape), f"{name}.bias": np.zeros(shape)}
            tensors |= {f"{name}.running_mean": np.zeros(shape), f"{name}.running_var": np.ones(shape)}
    save_file({name: np.ascontiguousarray(value, np.float32) for name, value in tensors.items()}, path)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Folders of made-up images, labels of people, and untrained networks."""
    folder = tmp_path_factory.mktemp("replication")
    rng = np.random.default_rng(0)
    data = folder / "data" / "cifar-10-batches-bin"
    data.mkdir(parents=True)
    for name in (*(f"data_batch_{part}.bin" for part in range(1, 6)), "test_batch.bin"):
        records = rng.integers(0, 256, (40, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        records.tofile(data / name)
    counts = rng.multinomial(50, np.full(10, 0.1), size=40)
    # Two of three images are clear: enough for some that an untrained network gets right.
    clear = np.arange(40) % 3 > 0
    counts[clear] = 50 * np.eye(10, dtype=int)[counts[clear].argmax(axis=1)]
    np.savez(folder / "data" / "human_labels.npz", cifar10h_counts=counts.astype(np.uint8))
    weights = folder / "weights"
    weights.mkdir()
    index = []
    for own in STUDY.bank.networks:
        for name in own.names("test"):
            write_network(weights / f"{name}.safetensors", own.depth, rng)
            normalize = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
            index.append({"file": f"{name}.safetensors", "depth": own.depth, "normalize": normalize})
    (weights / "index.json").write_text(json.dumps(index))
    return Inputs(data_dir=folder / "data", weights=weights, cache=folder / "cache")


@pytest.fixture(scope="module")
def bench(inputs):
    return Bench(Lab(STUDY.bank, STUDY.num_tuning, inputs=inputs, key=jr.key(1)), STUDY)


PARTS = ("networks", "ensembles", "epinets", "controls", "ablation", "dyads", "human", "shifts")


class Results(dict):
    """The rows of each part, as a CSV gives them back; computed when first asked for."""

    def __init__(self, inputs, folder):
        super().__init__()
        self.inputs, self.folder = inputs, folder

    def __missing__(self, part):
        units = Replication(study=STUDY, parts=(part,)).units()
        records = []
        for group in replication.groups(units):
            found = replication.run([units[name] for name in group], key=jr.key(1), inputs=self.inputs)
            for name, own in zip(group, found, strict=True):
                plain_rows = [{column: plain(value) for column, value in row.items()} for row in own]
                known = {"artifact": "replication", "hash": "", "version": "", "config": {}, "seed": 0}
                records.append(Record(unit=name, rows=plain_rows, provenance={}, **known))
        path = self.folder / f"{part}.csv"
        write_csv(path, records)
        self[part] = list(aggregate.read_rows(path))
        return self[part]


@pytest.fixture(scope="module")
def rows(inputs, tmp_path_factory):
    return Results(inputs, tmp_path_factory.mktemp("csv"))


def test_losses_are_those_of_the_library(getkey):
    x = {"logits": np.asarray(jr.normal(getkey(), (14, 3))), "features": np.asarray(jr.normal(getkey(), (14, 4)))}
    y = np.asarray(jr.randint(getkey(), (14,), 0, 3))
    example = {name: jnp.asarray(leaf[0]) for name, leaf in x.items()}
    enn = attach(stored_base, out_size=3, index_dim=2, example=example, key=getkey())
    key = getkey()
    # Two batches, of which neither cuts a pair.
    batches = [Batch(jax.tree.map(lambda leaf, at=at: leaf[at], x), y[at], y[at]) for at in (slice(8), slice(8, 14))]
    draws = Draws.given(enn.index, enn.index.sample_many(30, key=key))
    found = losses_of(enn, batches, draws, temperatures=(1.0, 0.5), taus=(1, 10, 100), counts=(7, 30))
    assert found.error is not None
    for place, temperature in enumerate((1.0, 0.5)):
        for count_place, count in enumerate((7, 30)):
            for tau in (1, 10, 100):
                expected = log_losses(
                    Tempered(enn, temperature), x, y, Draws.sample(enn.index, count, key=key), tau=tau
                )
                np.testing.assert_allclose(found.joint[tau][place, count_place], expected.joint.values, rtol=2e-4)
            np.testing.assert_allclose(found.marginal[place, count_place], expected.marginal.values, rtol=1e-4)
            assert expected.error is not None
            np.testing.assert_array_equal(found.error[place, count_place], expected.error.values)


def test_batches_of_images_change_no_loss(getkey):
    logits, y = np.asarray(jr.normal(getkey(), (10, 3, 4))), np.asarray(jr.randint(getkey(), (10,), 0, 4))
    enn, batch = StoredParticles(3), Batch(logits, y, y)
    whole = losses_of(enn, [batch], Draws.all(enn.index))
    parts = losses_of(enn, [batch], Draws.all(enn.index, batch_size=4))
    np.testing.assert_allclose(parts.joint[10], whole.joint[10], rtol=1e-5)
    np.testing.assert_allclose(parts.marginal, whole.marginal, rtol=1e-5)


def test_what_is_chosen_and_what_is_judged_have_no_image_in_common(bench):
    split = bench.lab.split
    assert len(split.tuning) == 12
    assert sorted([*split.tuning, *split.evaluation]) == list(range(40))


def test_a_temperature_keeps_the_marginal_loss_within_its_limit(bench):
    # One particle knows every label, the others are sure of a wrong one: sharp is best jointly, flat for single labels.
    y = bench.lab.labels("test")
    logits = np.zeros((40, 30, 10), np.float32)
    logits[np.arange(40), 0, y] = 4.0
    logits[np.arange(40), 1:, (y + 1) % 10] = 4.0
    agent = stored(logits)
    found = bench.losses(agent, bench.lab.split.tuning, STUDY.temperatures, (10,))
    marginal, joint = found.marginal.mean(axis=(1, 2)), found.joint[10].mean(axis=(1, 2))
    assert joint[0] < joint[1] < joint[2]
    assert marginal[0] > marginal[1] > marginal[2]
    assert bench.choose(agent).temperature == 0.5
    assert bench.choose(agent, limit=marginal[1]).temperature == 1.0
    assert bench.choose(agent, limit=0.0).temperature == 2.0
    assert bench.choose(agent).joint == pytest.approx(joint[0], rel=1e-5)


def test_a_piece_is_kept_and_goes_on_where_it_was(inputs, monkeypatch):
    piece = Piece(network="resnet8_02", images="test", num_images=30)
    folder = replication_bank.ensure(piece, inputs=inputs)
    first = replication_bank.features_of(piece, inputs=inputs)
    (folder / "done.json").unlink()
    again = replication_bank.features_of(piece, inputs=inputs)
    np.testing.assert_array_equal(first["logits"], again["logits"])
    assert first["features"].shape == (30, 112)
    monkeypatch.setattr(replication_bank, "load_network", lambda *_: pytest.fail("computed again"))
    (row,) = replication_bank.run(piece, key=jr.key(0), inputs=inputs)
    assert row["num_images"] == 30
    assert row["accuracy"] == pytest.approx(np.mean(first["logits"].argmax(axis=1) == first["y"]))


def test_logits_are_linear_in_the_last_features(inputs):
    found = replication_bank.features_of(Piece(network="resnet8_00", images="train", num_images=40), inputs=inputs)
    network, _ = replication_bank.load_network(inputs.weights, "resnet8_00")
    inner = network.network.network
    assert isinstance(inner, ResNet)
    linear = inner.linear
    expected = found["features"][:, -64:] @ np.asarray(linear.weight).T + np.asarray(linear.bias)
    np.testing.assert_allclose(found["logits"], expected, atol=1e-4)


def test_missing_folders_are_sentences(inputs, tmp_path):
    piece = Piece(network="resnet8_00", images="test", num_images=10)
    with pytest.raises(ReproduceError, match="`--data-dir` must be given"):
        replication_bank.ensure(piece, inputs=Inputs())
    with pytest.raises(ReproduceError, match="`cache` must be given"):
        replication_bank.ensure(piece, inputs=dataclasses.replace(inputs, cache=None))
    with pytest.raises(ReproduceError, match=r"index\.json that names it once"):
        replication_bank.load_network(tmp_path, "resnet8_00")


def test_changed_images_are_the_same_each_time_and_get_worse(inputs):
    clean = images_of(inputs.data_dir, "test", 10, key=jr.key(0))
    shifted, again = (images_of(inputs.data_dir, "shifted", 10, key=jr.key(0)).x for _ in range(2))
    np.testing.assert_array_equal(shifted, again)
    distance = {
        shift: np.abs(shifted[10 * place : 10 * place + 10].astype(float) - clean.x).mean()
        for place, shift in enumerate(shifts())
    }
    for kind in ("noise", "blur", "contrast"):
        found = [distance[kind, strength] for strength in range(1, 6)]
        assert found == sorted(found)
        assert found[0] > 0
    np.testing.assert_array_equal(shifted[:10], np.rot90(clean.x, 1, axes=(2, 3)))
    augmented = images_of(inputs.data_dir, "augmented", 10, key=jr.key(0))
    np.testing.assert_array_equal(augmented.y, images_of(inputs.data_dir, "train", 10, key=jr.key(0)).y)


def test_annotators_give_as_many_labels_as_are_drawn():
    shares = np.zeros((6, 4))
    shares[:, 1], shares[:, 2] = 0.75, 0.25
    drawn = draw_labels(shares, 10, np.random.default_rng(0))
    assert drawn.shape[0] == 3
    np.testing.assert_array_equal(drawn.sum(axis=(2, 3)), 10)
    assert drawn[..., 0].sum() == drawn[..., 3].sum() == 0


def test_rank_correlation_shares_the_ranks_of_ties():
    assert _rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 99.0])) == pytest.approx(1)
    # Ranks 1.5, 1.5, 3 and 1, 2, 3.
    assert _rank_correlation(np.array([0.0, 0.0, 5.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(math.sqrt(0.75))


def test_error_over_pairs_does_not_fall_with_the_number_of_bases():
    found = [{"joint": value, "joint_error": 0.3} for value in (1.0, 1.0, 1.0, 1.0)]
    assert BASES.mean(found, "joint") == pytest.approx((1.0, 0.3))
    spread = [{"joint": 0.0, "joint_error": 0.0}, {"joint": 2.0, "joint_error": 0.0}]
    assert BASES.mean(spread, "joint") == pytest.approx((1.0, 1.0))
    assert math.isnan(BASES.mean([], "joint")[0])


def test_cold_recipe_costs_less_than_a_fifth_of_a_particle(getkey):
    example = {"logits": jnp.zeros(10), "features": jnp.zeros(64)}
    enn = attach(stored_base, out_size=10, index_dim=COLD.index_dim, example=example, key=getkey())
    assert count_parameters(enn) == 2 * 14_450
    network, _ = cifar_resnet(20, key=getkey())
    particle = sum(layer.weight.size for layer in named_layers(network, "cifar").values())
    assert count_parameters(enn) < 0.2 * particle


@pytest.mark.long
def test_more_allowance_gives_no_larger_joint_loss_where_it_is_chosen(rows):
    found = {
        recipe: [row for row in rows["epinets"] if row["recipe"] == recipe and row["kind"] == "tuned"]
        for recipe in ("strict", "cold")
    }
    for strict, cold in zip(found["strict"], found["cold"], strict=True):
        assert cold["tuning_joint"] <= strict["tuning_joint"] or strict["tuning_marginal"] > strict["tuning_limit"]
        assert cold["tuning_marginal"] <= max(1.02 * cold["tuning_limit"], strict["tuning_marginal"]) + 1e-9


def test_no_row_is_there_twice(rows):
    names = ("network", "recipe", "kind", "tau", "num_samples")
    found = [tuple(row[name] for name in names) for row in rows["epinets"]]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("part", [pytest.param(part, marks=marks_of(part)) for part in PARTS])
def test_every_part_has_finite_rows(rows, part):
    assert rows[part]
    names = ("joint", "marginal", "difference", "excess", "error", "auroc_epistemic", "human_marginal")
    assert all(math.isfinite(row[name]) for row in rows[part] for name in names if name in row)


def test_parts_of_one_base_are_computed_together():
    units = Replication(study=STUDY, parts=PARTS).units()
    found = replication.groups(units)
    assert ["networks-all", "ensembles-all"] in found
    assert {name.split("-")[0] for name in found[1]} == set(PARTS) - {"networks", "ensembles"}
    assert sorted(name for group in found for name in group) == sorted(units)


def test_largest_ensemble_differs_from_itself_by_nothing(rows):
    own = [row for row in rows["ensembles"] if row["depth"] == 8 and row["size"] == 3]
    assert len(own) == 2 * len(STUDY.taus)
    assert all(row["difference"] == pytest.approx(0, abs=1e-5) for row in own)


def test_single_network_has_tau_times_its_marginal_loss(rows):
    for row in rows["networks"]:
        assert row["joint"] == pytest.approx(row["tau"] * row["marginal"], rel=1e-3)


@pytest.mark.long
def test_epinet_without_a_prior_is_the_same_as_control_and_as_ablation(rows):
    (control,) = [
        row
        for row in rows["controls"]
        if row["agent"] == "epinet without prior" and row["kind"] == "untuned" and row["tau"] == 10
    ]
    (ablation,) = [row for row in rows["ablation"] if row["factor"] == "prior_scale" and row["kind"] == "untuned"]
    assert control["joint"] == pytest.approx(ablation["joint"], rel=1e-4)


FIGURES = {
    name: config.parts
    for name, own in REGISTRY.items()
    if isinstance(config := own.tiers.get("replication"), Replication)
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(*parts)) for name, parts in FIGURES.items()])
def test_figures_and_claims_of_every_artifact(rows, name):
    own = [row for part in FIGURES[name] for row in rows[part]]
    with style_context():
        figure = REGISTRY[name].draw(own)
    assert figure.axes
    for claim in REGISTRY[name].claims:
        line = judge(claim, own)
        # There are no ensembles of ten here.
        assert math.isfinite(line.measurement.value) == (claim.id != "rep_tau_curves-ten"), claim.id
        assert math.isnan(judge(claim, [row for row in own if row["part"] == "networks"] or own[:0]).measurement.value)


def test_bank_is_drawn(inputs):
    pieces = list(STUDY.bank.units().values())[:2]
    found = [row for piece in pieces for row in replication_bank.run(piece, key=jr.key(0), inputs=inputs)]
    assert REGISTRY["rep_bank"].draw(found).axes


@pytest.mark.skipif(not DATA.is_dir(), reason="needs CIFAR-10 and the trained networks beside the project")
def test_real_networks_are_right_about_real_images(tmp_path):
    real = Inputs(data_dir=DATA / "cifar10", weights=DATA / "cifar10_resnets", cache=tmp_path)
    piece = Piece(network="resnet20_00", images="test", num_images=200)
    (row,) = replication_bank.run(piece, key=jr.key(0), inputs=real)
    assert float(row["accuracy"]) > 0.88
