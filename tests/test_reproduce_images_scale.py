"""Image protocols at scale, on tiny made-up data: trained on a mesh, kept, found again, planned; bad data folders."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from PIL import Image

from reproduce.configs.image_paper import Variant, full_protocol
from reproduce.configs.images import BaselineRecipe, Part, Training
from reproduce.errors import ReproduceError, UsageError
from reproduce.experiments import image_scale, images
from reproduce.experiments.image_sources import open_images
from reproduce.figures import fig07
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
    configs = parts_of(TINY, "bases", "ensembles", "epinets", "augmented", "ablation", "grids")
    found = rows_of(configs, inputs)
    # A single network predicts ten labels as well as ten times one.
    for row in found["bases"]:
        assert row["joint"] == pytest.approx(10 * row["marginal"], rel=1e-4)
    one, two = found["ensembles"]
    assert one["joint"] == pytest.approx(found["bases"][0]["joint"])
    assert (two["flops"], two["parameters"]) == (2 * one["flops"], 2 * one["parameters"])
    assert {row["agent"] for row in found["augmented"]} == {
        "resnet", "ensemble", "epinet", "dropout", "mimo", "sngp", "het"
    }  # fmt: skip
    assert all(np.isfinite(row["augmented"]) for row in found["augmented"])
    assert [row["row"] for row in found["ablation"]] == ["default", "matched prior scale", "temperature"]
    assert len(found["grids"][0]["pixels"].split("/")) == 32
    assert fig07.draw(found["grids"]).axes

    # Everything is there now: a second run trains nothing, and finds the same numbers.
    def forbidden(*args, **options):
        raise AssertionError("this was computed before")

    monkeypatch.setattr("epinet_eqx.scale._loop.make_train_step", lambda *args, **options: forbidden)
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


@pytest.mark.long
def test_a_plan_names_every_network_and_trains_none(tmp_path):
    protocol = dataclasses.replace(TINY, dataset="digits", ablation=(("index dimension", (3,)),))
    rows = images.plan(
        parts_of(protocol, "bases", "ensembles", "epinets", "baselines", "ablation"), inputs=Inputs(), key=jr.key(0)
    )
    assert [(row["network"], row["copies"]) for row in rows] == [
        ("particle 0", 2),
        ("epinet 8", 1),
        ("dropout", 1),
        ("mimo", 1),
        ("sngp", 1),
        ("het", 1),
        ("epinet 8", 1),
    ]
    # The digits without the examples that are held out, once, in batches of 8.
    assert {row["steps"] for row in rows} == {(1437 - 8) // 8}
    assert all(row["flops"] > 1e5 and row["memory"] > 0 and row["disk"] > 0 for row in rows)


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
    assert (released.matched_scale, released.conv_scale, text.matched_scale) == (4.0, 0.0, 1.0)
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
    from epinet_eqx.networks._image_layers import max_pool

    x = jnp.arange(16.0).reshape(4, 4, 1)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(max_pool(x, "same"))))(x)
    assert gradient.ravel()[10] == 1 and jnp.sum(gradient) == 4
