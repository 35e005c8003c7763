"""Image protocols at scale, on tiny made-up data: trained on a mesh, kept, found again, planned; bad data folders."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from PIL import Image

from epinet_eqx.training import data_mesh
from reproduce import counting
from reproduce.artifacts import fig07
from reproduce.configs.image_paper import Variant, full_protocol
from reproduce.configs.images import BaselineRecipe, Part, Training
from reproduce.counting import Counted
from reproduce.dry_run import tabulate
from reproduce.errors import ReproduceError, UsageError
from reproduce.experiments import image_scale, image_scale_training, images
from reproduce.experiments.image_sources import open_images
from reproduce.inputs import Inputs
from reproduce.memory import told
from reproduce.registry import REGISTRY

pytestmark = pytest.mark.once

_TRAINING = Training(epochs=1, batch_size=8, learning_rate=0.01, optimizer="sgd", schedule="cosine")
_CIFAR = full_protocol("cifar10")
TINY = dataclasses.replace(
    _CIFAR,
    num_validation=8,
    sizes=(8,),
    training=_TRAINING,
    epinet=dataclasses.replace(_CIFAR.epinet, index_dim=2, hidden=(3,), training=_TRAINING),
    baselines=BaselineRecipe(random_features=4, het_rank=1, het_samples=2, training=_TRAINING),
    ensemble_sizes=(1, 2),
    temperatures=(0.5,),
    sample_counts=(4,),
    num_samples=4,
    num_augmented=2,
    ablation=(("matched prior scale", (0.0,)), ("temperature", (0.5,))),
)


@pytest.fixture
def cifar_folder(tmp_path):
    rng = np.random.default_rng(3)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name, count in [(f"data_batch_{part}.bin", 5) for part in range(1, 6)] + [("test_batch.bin", 6)]:
        records = rng.integers(0, 256, (count, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / name).write_bytes(records.tobytes())
    return tmp_path


@pytest.fixture
def image_folder(tmp_path):
    rng = np.random.default_rng(4)
    for split, count in (("train", 9), ("val", 3)):
        for label in ("cat", "dog"):
            (tmp_path / split / label).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / label / f"{number}.png")
    return tmp_path


def parts_of(protocol, *names):
    return [Part(protocol=protocol, part=name, seed=0) for name in names]


def rows_of(configs, inputs):
    return dict(
        zip([config.part for config in configs], images.run(configs, inputs=inputs, key=jr.key(0)), strict=True)
    )


@pytest.mark.long
def test_a_protocol_is_trained_on_a_mesh_and_found_again(cifar_folder, tmp_path, monkeypatch):
    inputs = Inputs(data_dir=cifar_folder, networks=tmp_path / "networks")
    augmented = ("augmented", "augmented-baselines")
    configs = parts_of(TINY, "bases", "ensembles", "epinets", *augmented, "ablation", "grids")
    found = rows_of(configs, inputs)
    # A single network predicts ten labels as well as ten times one.
    for row in found["bases"]:
        assert row["joint"] == pytest.approx(10 * row["marginal"], rel=1e-4)
    one, two = found["ensembles"]
    assert one["joint"] == pytest.approx(found["bases"][0]["joint"])
    assert (two["flops"], two["parameters"]) == (2 * one["flops"], 2 * one["parameters"])
    agents = [{row["agent"] for row in found[part]} for part in augmented]
    assert agents == [{"resnet", "ensemble", "epinet"}, {"dropout", "mimo", "sngp", "het"}]
    assert all(np.isfinite(row["augmented"]) for part in augmented for row in found[part])
    assert [row["row"] for row in found["ablation"]] == ["default", "matched prior scale", "temperature"]
    assert len(found["grids"][0]["pixels"].split("/")) == 32
    assert fig07.draw(found["grids"]).axes

    # Everything is there now: a second run trains nothing, and finds the same numbers.
    def forbidden(*args, **options):
        raise AssertionError("this was computed before")

    monkeypatch.setattr("epinet_eqx.training._fit.make_train_step", lambda *args, **options: forbidden)
    monkeypatch.setattr(image_scale.FeatureBank, "build", forbidden)
    again = rows_of(configs[:3], inputs)
    assert all(again[name] == found[name] for name in again)


@pytest.mark.long
def test_a_folder_of_images_is_trained_on(image_folder, tmp_path):
    protocol = dataclasses.replace(TINY, dataset="folder", image_size=16, num_validation=2)
    inputs = Inputs(data_dir=image_folder, networks=tmp_path / "networks")
    (base,) = rows_of(parts_of(protocol, "bases"), inputs)["bases"]
    assert np.isfinite(base["joint"])
    assert base["exact"]


def test_a_plan_names_every_network_and_trains_none():
    protocol = dataclasses.replace(TINY, dataset="digits", ablation=(("index dimension", (3,)),))
    trainings = images.plan(
        parts_of(protocol, "bases", "ensembles", "epinets", "baselines", "ablation"), inputs=Inputs(), key=jr.key(0)
    )
    assert [(training.name, training.copies) for training in trainings] == [
        ("particle 0", 2),
        ("epinet 8", 1),
        ("dropout", 1),
        ("mimo", 1),
        ("sngp", 1),
        ("het", 1),
        ("epinet 8", 1),
    ]
    # The digits without the examples that are held out, once, in batches of 8.
    assert {training.steps for training in trainings} == {(1437 - 8) // 8}
    # Nothing is there but shapes.
    leaves = jax.tree.leaves([training.arguments for training in trainings])
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    # Weights, momentum and running values of the smallest network, and outputs of ten classes.
    network, state = image_scale_training.FAMILIES["cifar_resnet"](8, 10, in_channels=1, key=jr.key(0))
    weights, values = (
        sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(t, eqx.is_array))) for t in (network, state)
    )
    outputs = 10 * (8 + 360 + 10 * protocol.num_augmented)
    assert trainings[0].disk == pytest.approx(4 * (2 * weights + values + outputs), abs=100)


@pytest.mark.long
def test_every_planned_step_compiles():
    protocol = dataclasses.replace(TINY, dataset="digits", ablation=(("index dimension", (3,)),))
    parts = parts_of(protocol, "bases", "epinets", "baselines", "ablation")
    trainings = images.plan(parts, inputs=Inputs(), key=jr.key(0))
    lines = list(tabulate(trainings, num_devices=4, tflops=1.0))
    assert len(lines) == 9
    operations = {line.split()[0]: float(line.split()[-4].replace(",", "")) for line in lines[1:-1]}
    assert min(operations.values()) > 0
    # Networks of one size on one batch: no device does the work of another.
    for name in ("mimo", "sngp", "het"):
        assert operations[name] == pytest.approx(operations["dropout"], rel=0.5)


def test_a_dry_run_counts_each_program_once(monkeypatch):
    protocol = dataclasses.replace(
        TINY, dataset="digits", ablation=(("matched prior scale", (0.0, 2.0)), ("index dimension", (3,)))
    )
    trainings = images.plan(parts_of(protocol, "ensembles", "ablation"), inputs=Inputs(), key=jr.key(0))
    asked = []

    def count(step, arguments):
        asked.append(arguments)
        return Counted(flops=3.6e15, memory=2_500_000_000)

    monkeypatch.setattr("reproduce.counting.count", count)
    lines = list(tabulate(trainings, num_seeds=3, num_devices=4, tflops=100.0))
    assert lines[0].split() == ["network", "copies", "steps", "GFLOP/step", "GB/device", "hours", "GB", "disk"]
    rows = {line[: lines[0].index(" copies")].strip(): line[lines[0].index(" copies") :].split() for line in lines}
    # Scales of priors are values: three epinets are one program. Another index dimension is another one.
    assert [len(asked), list(rows)] == [3, ["network", "epinet 8", "epinet 8, index_dim 3", "particle 0", "all"]]
    assert rows["epinet 8"][:4] == ["9", "178", "3,600,000", "2.5"]
    assert float(rows["epinet 8"][4]) == pytest.approx(9 * 178 * 3.6e15 / 400e12 / 3600, rel=1e-2)
    assert float(rows["particle 0"][4]) == pytest.approx(6 * 178 * 3.6e15 / 400e12 / 3600, rel=1e-2)
    assert (rows["all"][0], float(rows["all"][1])) == ("18", pytest.approx(18 * 178 * 9 / 3600, rel=1e-2))


def test_operations_and_memory_are_those_of_the_program():
    mesh = data_mesh()
    x = jax.ShapeDtypeStruct((400, 300), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("data")))
    w = jax.ShapeDtypeStruct((300, 200), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec()))
    found = counting.count(lambda w, x: (w, x @ w), (w, x))
    assert found.flops == pytest.approx(2 * 400 * 300 * 200)
    # The weights, which stay, and a quarter of input and output.
    assert found.memory == pytest.approx(4 * (300 * 200 + 100 * 300 + 100 * 200), rel=1e-3)


def test_an_option_that_xla_does_not_know_is_left_out(monkeypatch):
    monkeypatch.setitem(counting._QUICK, "xla_no_such_option", True)
    assert counting.count(lambda x: (x + x,), (jax.ShapeDtypeStruct((8,), jnp.float32),)).flops == 8
    monkeypatch.setitem(counting._QUICK, "xla_backend_optimization_level", "much")
    with pytest.raises(jax.errors.JaxRuntimeError, match="much"):
        counting.count(lambda x: (x + x,), (jax.ShapeDtypeStruct((8,), jnp.float32),))


def test_a_batch_must_be_divisible():
    protocol = dataclasses.replace(TINY, training=dataclasses.replace(_TRAINING, batch_size=6))
    with pytest.raises(ReproduceError, match="must divide the batch size, 6; got 4 times 1"):
        images.plan(parts_of(protocol, "bases"), inputs=Inputs(), key=jr.key(0))


@pytest.mark.parametrize(
    ("dataset", "make", "words"),
    [
        ("cifar10", None, "`--data-dir` must be given; expected CIFAR-10"),
        ("cifar10", "empty", "Get it with `python -m epinet_eqx.data fetch cifar10"),
        ("cifar10", "cut", "must hold whole records of 3073 bytes; got 100"),
        ("fashion_mnist", "empty", "train-images-idx3-ubyte"),
        ("imagenet", "missing", "must be a folder that exists"),
        ("imagenet", "empty", "must hold a folder train; .* holds nothing. Expected ImageNet"),
        ("imagenet", "folder", "must hold the 1000 classes of ImageNet; .* holds 2"),
        (
            "imagenet",
            "part",
            "must hold the 1281167 training and 50000 validation images of ImageNet; .* 1000 and 1000",
        ),
        ("folder", "uneven", "must have the same classes in both splits; .* dog in one only"),
        ("folder", "flat", "one folder per class"),
    ],
)
def test_bad_data_folders_are_told_apart(dataset, make, words, tmp_path, request):
    folder = tmp_path / "data"
    if make != "missing":
        folder.mkdir()
    if make == "cut":
        (folder / "data_batch_1.bin").write_bytes(bytes(100))
    if make in ("folder", "uneven"):
        folder = request.getfixturevalue("image_folder")
    if make == "uneven":
        (folder / "val" / "dog").rename(folder / "dog")
    if make == "part":
        for split in ("train", "val"):
            for label in range(1000):
                (folder / split / f"n{label:08}").mkdir(parents=True)
                (folder / split / f"n{label:08}" / "1.JPEG").touch()
    if make == "flat":
        (folder / "train").mkdir()
        (folder / "val").mkdir()
        (folder / "train" / "1.png").touch()
    inputs = Inputs(data_dir=None if make is None else folder)
    with pytest.raises(ReproduceError, match=words):
        open_images(full_protocol(dataset), inputs, key=jr.key(0))


def test_variants_change_what_is_recorded_and_where():
    artifact = REGISTRY["fig10"]
    released = artifact.at_tier("paper", Variant(preset="released")).protocol.epinet
    text = artifact.at_tier("paper").protocol.epinet
    assert (released.prior_scale, released.conv_scale, text.prior_scale) == (4.0, 0.0, 1.0)
    assert artifact.at_tier("laptop", Variant(dataset="fashion_mnist")).protocol.dataset == "fashion_mnist"
    assert Variant(dataset="cifar10", preset="released").name == "cifar10-released"
    with pytest.raises(UsageError, match="`--preset` is for `--tier paper`"):
        artifact.at_tier("laptop", Variant(preset="released"))
    with pytest.raises(UsageError, match="must be one of paper, released; got realeased. Did you mean released"):
        Variant(preset="realeased")


def test_out_of_memory_says_what_to_do():
    def results():
        yield 1
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate")

    found = told(results())
    assert next(found) == 1
    with pytest.raises(ReproduceError, match="`--accumulate 2`"):
        next(found)


def test_max_pooling_has_a_gradient_under_jit():
    from epinet_eqx.networks._layers import max_pool

    x = jnp.arange(16.0).reshape(4, 4, 1)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(max_pool(x, "same"))))(x)
    assert gradient.ravel()[10] == 1 and jnp.sum(gradient) == 4
