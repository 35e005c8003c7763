"""Banks in one small file: what quantization keeps, damaged files, and the banks that ship."""

import io
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epinet_eqx.data import LinearLayer, PackedBank, pack_bank, quantization_loss, stored_base
from epinet_eqx.data._arrays import check_stretch
from epinet_eqx.epinet import attach
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.training import fit
from reproduce.banks import (
    BANKS,
    MAX_CHANGE,
    NUM_CIFAR_TRAIN,
    cifar_network,
    decode,
    decoded_batches,
    make_imagenet,
    open_shipped,
    outputs,
    read_index,
)

pytestmark = pytest.mark.once


def make_splits(*, sizes=(("train", 30), ("test", 20)), dim=8, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    linear = LinearLayer(rng.normal(size=(classes, dim)), rng.normal(size=classes))
    splits = {}
    for name, size in sizes:
        features = rng.exponential(size=(size, dim)) * np.arange(dim)
        logits = features @ linear.weight.T + linear.bias
        splits[name] = {"features": features, "logits": logits, "y": rng.integers(0, classes, size)}
    return splits, linear


def test_features_are_kept_to_half_a_step_per_dimension(tmp_path):
    splits, linear = make_splits()
    pack_bank(tmp_path / "bank", splits, linear=linear, levels=128, linear_levels=65536)
    bank = PackedBank(tmp_path / "bank")
    assert (bank.splits, bank.feature_dim, bank.num_classes) == ({"train": 30, "test": 20}, 8, 5)
    everything = np.concatenate([rows["features"] for rows in splits.values()])
    half = (everything.max(axis=0) - everything.min(axis=0)) / 127 / 2
    for name, rows in splits.items():
        batch = bank.as_batch(name)
        assert np.all(np.abs(np.asarray(batch.x["features"]) - rows["features"]) <= half * 1.001 + 1e-6)
        logits = np.asarray(batch.x["features"]) @ linear.weight.T + linear.bias
        np.testing.assert_allclose(batch.x["logits"], logits, atol=2e-3)
        np.testing.assert_array_equal(batch.y, rows["y"])
        np.testing.assert_array_equal(batch.i, np.arange(len(rows["y"])))


def test_logits_alone_are_kept_to_half_a_step_per_row(tmp_path):
    splits, _ = make_splits()
    only = {name: {"logits": rows["logits"], "y": rows["y"]} for name, rows in splits.items()}
    pack_bank(tmp_path / "bank", only)
    bank = PackedBank(tmp_path / "bank")
    assert bank.feature_dim == 0 and bank.linear is None
    expected = only["test"]["logits"]
    half = np.ptp(expected, axis=1, keepdims=True) / 255 / 2
    assert np.all(np.abs(np.asarray(bank.as_batch("test").x["logits"]) - expected) <= half * 1.01)


def test_equal_outputs_are_equal_files(tmp_path):
    splits, linear = make_splits()
    for name in ("first", "second"):
        pack_bank(tmp_path / name, splits, linear=linear)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_quantization_loss_is_the_change_of_the_mean_log_loss(tmp_path):
    splits, linear = make_splits()
    pack_bank(tmp_path / "bank", splits, linear=linear, levels=4)
    bank = PackedBank(tmp_path / "bank")
    changes = []
    for name, rows in splits.items():
        log_p = [jax.nn.log_softmax(jnp.asarray(x)) for x in (bank.as_batch(name).x["logits"], rows["logits"])]
        new, old = (-jnp.mean(jnp.take_along_axis(p, jnp.asarray(rows["y"])[:, None], axis=1)) for p in log_p)
        changes.append(abs(float(new - old)))
    assert quantization_loss(bank, splits) == pytest.approx(max(changes), rel=1e-4)
    assert max(changes) > 0


def test_labels_are_never_rounded_or_wrapped(tmp_path):
    splits, _ = make_splits()
    for wrong, message in (
        (2**16 + 1, "labels from 0 to 32767; got 65537"),
        (-1, "got -1 at"),
        (0.5, "integers as labels"),
    ):
        bad = {"train": {**splits["train"], "y": np.full(30, wrong)}}
        with pytest.raises(ValueError, match=message):
            pack_bank(tmp_path / "bank", bad)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("features", np.zeros((50, 8), np.float32), "`features` is float32 of shape"),
        ("features_low", np.full((1, 8), np.nan, np.float32), "`features_low` is float32 of shape .*, or not finite"),
        ("features_step", np.zeros(8, np.float32), "`features_step` is float32 of shape"),
        ("bias", np.zeros((1, 5), np.float32), "`bias` is float32 of shape"),
        ("y_test", np.full(20, 5, np.int16), "test must hold labels from 0 to 4; got 5"),
        ("y_test", np.zeros(19, np.int16), "50 rows for 49 labels"),
        ("format", np.array([1, 1]), "`format` is int64 of shape"),
    ],
)
def test_edited_arrays_are_refused(tmp_path, name, value, message):
    splits, linear = make_splits()
    pack_bank(tmp_path / "bank", splits, linear=linear)
    with np.load(tmp_path / "bank") as content:
        arrays = dict(content)
    with open(tmp_path / "bank", "wb") as file:
        np.savez(file, **arrays | {name: value})
    with pytest.raises(ValueError, match=f"must be a bank of `pack_bank`; .*{message}"):
        PackedBank(tmp_path / "bank")


def test_an_epinet_trains_on_a_bank(tmp_path, getkey):
    splits, linear = make_splits()
    pack_bank(tmp_path / "bank", splits, linear=linear)
    bank = PackedBank(tmp_path / "bank")
    enn = attach(stored_base, out_size=5, index_dim=3, example=bank.example(), key=getkey())
    result = fit(enn, bank.as_batch("train"), CrossEntropy(), num_steps=2, progress=False, key=getkey())
    assert bool(jnp.all(jnp.isfinite(result.enn.head(result.enn.embed(bank.example()), jnp.ones(3)))))


def write_npz(path, number):
    with path.open("wb") as file:
        np.savez(file, format=np.array(number))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "must be a bank of `pack_bank`; .*whole"),
        (lambda path: write_npz(path, 1), "must be a bank of `pack_bank`"),
        (lambda path: write_npz(path, 2), "must be a bank of `pack_bank`; format 2"),
        (lambda path: path.unlink(), "is missing"),
    ],
    ids=["truncated", "empty", "format", "missing"],
)
def test_damaged_banks_are_refused(tmp_path, damage, message):
    splits, linear = make_splits()
    path = tmp_path / "bank"
    pack_bank(path, splits, linear=linear)
    damage(path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        PackedBank(path)


def test_arguments_of_banks_are_checked(tmp_path):
    splits, linear = make_splits()
    with pytest.raises(ValueError, match="`levels` must be from 2 to 256; got 257"):
        pack_bank(tmp_path / "bank", splits, linear=linear, levels=257)
    with pytest.raises(ValueError, match="`linear_levels` must be from 2 to 65536; got 1"):
        pack_bank(tmp_path / "bank", splits, linear=linear, linear_levels=1)
    splits["test"]["features"][0, 0] = np.nan
    with pytest.raises(ValueError, match="`features` of 'test' must be finite in single precision; got nan"):
        pack_bank(tmp_path / "bank", splits, linear=linear)
    assert not (tmp_path / "bank").exists()
    splits["test"]["features"][0, 0] = 1.0
    pack_bank(tmp_path / "bank", splits, linear=linear)
    bank = PackedBank(tmp_path / "bank")
    with pytest.raises(ValueError, match="`split` must be among train, test; got 'val'"):
        bank.as_batch("val")
    with pytest.raises(ValueError, match="`start` must be from 0 to below 20"):
        bank.as_batch("test", start=20)
    # A slice would count from the end, and number the examples from -3.
    for start, stop in ((-3, None), (0, -1), (5, 5)):
        with pytest.raises(ValueError, match="`start` must be from 0 to below"):
            bank.as_batch("test", start=start, stop=stop)
    for start, stop in ((1.5, None), (True, None), (0, 2.5)):
        with pytest.raises(ValueError, match="must be an integer; got"):
            check_stretch(start, stop, 20)
    np.testing.assert_array_equal(bank.as_batch("test", start=5, stop=7).i, [5, 6])


def change(split, **arrays):
    """Return splits with other arrays in one of them; None takes one away."""

    def make(splits):
        rows = {**splits[split], **arrays}
        return {**splits, split: {name: value for name, value in rows.items() if value is not None}}

    return make


SHORT, LONG = np.zeros((19, 8)), np.zeros((31, 8))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda splits: {}, "`splits` must hold at least one split"),
        (change("test", y=None), "`splits` must hold y of 'test'"),
        (change("test", logits=None), "`splits` must hold logits of 'test'"),
        (change("test", features=None), "`splits` must hold features of every split or of none; got those of 1"),
        # The rows add up to those of the labels, and each would have the label of another.
        (
            lambda splits: change("test", features=SHORT)(change("train", features=LONG)(splits)),
            r"`features` of 'train' must hold real numbers of shape \(30, None\); got float64 of shape \(31, 8\)",
        ),
        (change("test", features=np.zeros((20, 7))), r"`features` of 'test' must hold real numbers of shape \(20, 8\)"),
        (change("test", features=np.ones((20, 8), complex)), "got complex128 of shape"),
        (change("test", logits=np.zeros(20)), "`logits` of 'test' must hold real numbers"),
        (change("test", y=np.full(20, 5)), "`test` must hold labels from 0 to 4; got 5"),
        # Half precision would round the lowest logit up by more than all of their differences.
        (
            lambda splits: change("test", logits=splits["test"]["logits"] + 3e4)(splits),
            "`logits` must be numbers whose",
        ),
        (
            lambda splits: change("test", logits=splits["test"]["logits"] * 1e5)(splits),
            "`logits` must be numbers whose ends float16",
        ),
    ],
)
def test_outputs_that_do_not_fit_are_refused_before_anything_is_written(tmp_path, make, message):
    splits, _ = make_splits()
    with pytest.raises(ValueError, match=message):
        pack_bank(tmp_path / "bank", make(splits))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("linear", "message"),
    [
        (LinearLayer(np.ones((5, 7)), np.zeros(5)), r"`linear.weight` must hold real numbers of shape \(5, 8\)"),
        (LinearLayer(np.ones((5, 8)), np.zeros(1)), r"`linear.bias` must hold real numbers of shape \(1, 5\)"),
        (LinearLayer(np.ones((5, 8)), np.full(5, np.inf)), "`linear.bias` must be finite"),
        (LinearLayer(np.ones((4, 8)), np.zeros(4)), "must hold labels from 0 to 3; got 4"),
    ],
)
def test_linear_layers_that_do_not_fit_are_refused(tmp_path, linear, message):
    with pytest.raises(ValueError, match=message):
        pack_bank(tmp_path / "bank", make_splits()[0], linear=linear)


def test_equal_logits_and_tiny_differences_are_kept(tmp_path):
    for number, scale in enumerate((0.0, 1e-12, 1e-7)):
        logits = 2.0 + scale * np.arange(5.0) * np.ones((5, 1))
        pack_bank(tmp_path / str(number), {"test": {"logits": logits, "y": np.arange(5)}})
        np.testing.assert_allclose(PackedBank(tmp_path / str(number)).as_batch("test").x["logits"], 2.0, atol=1e-5)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_images_of_every_mode_become_rgb(mode):
    image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image.new(mode, (300, 280)).save(stream, "JPEG")
    assert decode(stream.getvalue()).shape == (3, 224, 224)


def test_gray_levels_of_16_bits_are_scaled_and_transparent_pixels_are_white():
    image = pytest.importorskip("PIL.Image")

    def png(picture):
        stream = io.BytesIO()
        picture.save(stream, "PNG")
        return stream.getvalue()

    ramp = np.linspace(0, 65535, 224 * 224).reshape(224, 224)
    # Pillow alone would clip them to white.
    np.testing.assert_allclose(decode(png(image.fromarray(ramp.astype(np.uint16))))[0], ramp / 257, atol=1)
    assert np.all(decode(png(image.new("RGBA", (224, 224), (0, 0, 0, 0)))) == 255)


def test_damaged_images_are_named(tmp_path):
    with pytest.raises(ValueError, match="The image is not a whole image: no JPEG, PNG, WEBP file; got 4 bytes"):
        decode(b"RIFF")
    # Nothing is asked to run: Pillow would hand this one to Ghostscript.
    with pytest.raises(ValueError, match="is not a whole image"):
        decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")
    np.savez(tmp_path / "val_0.npz", data=np.zeros(20, np.uint8), offsets=np.array([0, 10, 20]), labels=np.arange(2))
    with pytest.raises(ValueError, match="Image 0 of val_0.npz is not a whole image.*got 10 bytes"):
        list(decoded_batches([tmp_path / "val_0.npz"]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("absent", r"must hold val_\*.npz and train_like.npz; \['train'\] are missing"),
        ("class", "must hold an image of each of 1000 classes; 1 are missing, the first is 7"),
        ("array", "must hold the arrays data, offsets and labels"),
        (
            "offsets",
            "must have increasing `offsets` from 0 to the size of `data`, one more than `labels`; got 1001 for",
        ),
        ("cut", "must hold the arrays data, offsets and labels; got"),
    ],
)
def test_damaged_folders_of_images_are_refused(tmp_path, damage, message):
    arrays = {"data": np.zeros(1000, np.uint8), "offsets": np.arange(1001), "labels": np.arange(1000)}
    np.savez(tmp_path / "val_0.npz", **arrays)
    if damage == "class":
        arrays["labels"] = np.where(arrays["labels"] == 7, 8, arrays["labels"])
    if damage == "array":
        del arrays["labels"]
    if damage == "offsets":
        arrays["offsets"] = arrays["offsets"] + 1
    path = tmp_path / "train_like.npz"
    if damage != "absent":
        np.savez(path, **arrays)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        make_imagenet(tmp_path, tmp_path, tmp_path / "bank")
    assert not (tmp_path / "bank").exists()


SHIPPED = [
    (path.parent.name, name) for path in sorted(BANKS.glob("*/bank.json")) for name in read_index(path.parent.name)
]


def test_the_banks_that_ship_fit_into_40_megabytes():
    assert {dataset for dataset, _ in SHIPPED} == {"imagenet", "cifar10"}
    assert sum(path.stat().st_size for path in BANKS.rglob("*") if path.is_file()) <= 40e6


@pytest.mark.parametrize(("dataset", "name"), SHIPPED)
def test_a_bank_that_ships_is_what_its_index_says(dataset, name):
    entry = read_index(dataset)[name]
    bank = open_shipped(dataset, name)
    assert bank.splits == entry["splits"]
    assert entry["quantization"] <= MAX_CHANGE
    for split, top1 in entry["top1"].items():
        batch = bank.as_batch(split)
        found = float(jnp.mean(jnp.argmax(batch.x["logits"], axis=1) == batch.y))
        assert found == pytest.approx(top1, abs=0.005)


def test_a_changed_bank_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("reproduce.banks.BANKS", tmp_path)
    (tmp_path / "imagenet").mkdir()
    splits, linear = make_splits()
    pack_bank(tmp_path / "imagenet" / "name.npz", splits, linear=linear)
    index = {"networks": {"name": {"file": "name.npz", "sha256": "0" * 64}}}
    (tmp_path / "imagenet" / "bank.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must have the checksum 000"):
        open_shipped("imagenet", "name")


ROOT = pathlib.Path(__file__).parent.parent
IMAGES = [folder / "shared" / "data" / "imagenet" for folder in (ROOT.parent, ROOT.parent.parent)]
IMAGES = [folder for folder in IMAGES if folder.is_dir()]


@pytest.mark.long
@pytest.mark.skipif(not IMAGES, reason="needs images of ImageNet")
def test_a_part_of_a_bank_is_made_anew():
    from epinet_eqx.weights import pretrained

    try:
        network, normalization = pretrained("squeezenet1_1")
    except OSError as error:
        pytest.skip(str(error))
    new = outputs(network, normalization, decoded_batches([IMAGES[0] / "val_0.npz"], 64))
    kept = open_shipped("imagenet", "squeezenet1_1").as_batch("val", stop=64)
    np.testing.assert_array_equal(new["y"], kept.y)
    step = np.ptp(np.asarray(kept.x["features"]))
    assert np.abs(new["features"] - np.asarray(kept.x["features"])).max() < 0.02 * step
    assert np.abs(new["logits"] - np.asarray(kept.x["logits"])).max() < 0.5


CIFAR = [folder / "shared" / "data" for folder in (ROOT.parent, ROOT.parent.parent)]
CIFAR = [folder for folder in CIFAR if (folder / "cifar10_resnets").is_dir()]
CIFAR_INDEX = [name for dataset, name in SHIPPED if dataset == "cifar10"]


def cifar_sheet(split):
    """Return the first images of CIFAR-10, channels first, and their labels, from a sheet of 25 rows of 40 images."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.asarray(image.open(CIFAR[0] / "cifar10" / f"{split}_00.webp").convert("RGB"))
    with np.load(CIFAR[0] / "cifar10" / "labels.npz", allow_pickle=False) as labels:
        return pixels.reshape(25, 32, 40, 32, 3)[0].transpose(1, 3, 0, 2), labels[split][:40]


# One network in every run, the others where minutes do not matter.
@pytest.mark.skipif(not CIFAR, reason="needs CIFAR-10 and trained networks")
@pytest.mark.parametrize(
    "name", [CIFAR_INDEX[0], *(pytest.param(name, marks=pytest.mark.long) for name in CIFAR_INDEX[1:])]
)
def test_a_part_of_the_bank_of_cifar_is_made_anew(name):
    folder = CIFAR[0] / "cifar10_resnets"
    (entry,) = (own for own in json.loads((folder / "index.json").read_text()) if own["file"].startswith(name))
    network, normalization = cifar_network(folder, entry)
    bank, about = open_shipped("cifar10", name), read_index("cifar10")[name]
    assert bank.splits.get("train") in (None, NUM_CIFAR_TRAIN[entry["depth"]])
    for split in bank.splits:
        pixels, y = cifar_sheet(split)
        new, kept = outputs(network, normalization, iter([(pixels, y)])), bank.as_batch(split, stop=40)
        np.testing.assert_array_equal(kept.y, y)
        stored = "features" if bank.feature_dim else "logits"
        # Half a step of what is stored: features by their range in the bank, logits by that of each image.
        axis = 0 if bank.feature_dim else 1
        ranges = [np.asarray(bank.as_batch(part).x[stored]) for part in bank.splits] if axis == 0 else [kept.x[stored]]
        half = np.ptp(np.concatenate(ranges), axis=axis, keepdims=True) / (about["levels"] - 1) / 2
        assert np.all(np.abs(new[stored] - np.asarray(kept.x[stored])) <= 1.02 * half + 2e-3)
