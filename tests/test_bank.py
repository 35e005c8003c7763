"""The feature bank: the same epinet as through the base, resumed, checked, imported."""

import json
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from epinet_eqx import Frozen, attach, fit, named_keys
from epinet_eqx.data import ArrayDataset, FeatureBank, Loader, Normalization, digits, import_features, stored_base
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.networks import MLP, FunctionNetwork

pytestmark = pytest.mark.once


def make_base(key, hidden=6):
    mlp = MLP(64, 10, (hidden,), feature_layers=(-1,), key=key)
    return FunctionNetwork(lambda mlp, x: mlp.with_features(x.reshape(-1)), params=mlp)


def make_data(count=30):
    return {"train": digits("train").take(slice(0, count)), "test": digits("test").take(slice(0, 7))}


def build(base, path, data=None, **options):
    options = {"batch_size": 4, "batches_per_shard": 2} | options
    return FeatureBank.build(base.with_features, data or make_data(), path, **options)


def test_bank_holds_what_the_base_says(tmp_path, getkey):
    base, data = make_base(getkey()), make_data()
    bank = build(base, tmp_path)
    assert (bank.splits, bank.feature_dim, bank.num_classes) == ({"train": 30, "test": 7}, 6, 10)
    for split, source in data.items():
        batch = bank.as_batch(split)
        logits, features = jax.vmap(base.with_features)(jnp.asarray(source.x))
        np.testing.assert_allclose(batch.x["logits"], logits, atol=1e-5)
        np.testing.assert_allclose(batch.x["features"], features, atol=1e-5)
        np.testing.assert_array_equal(batch.y, source.y)
        np.testing.assert_array_equal(batch.i, source.i)
    shards = sorted(name for name in os.listdir(tmp_path) if name.startswith("train"))
    assert shards == [f"train-{n:05d}-of-00004.safetensors" for n in range(4)]


def test_a_part_of_a_split_and_a_bank_without_features(tmp_path, getkey):
    base, data = make_base(getkey()), make_data()

    def outputs(x):
        return base.with_features(x)[0], jnp.zeros(0)

    # The second call compares what it computes with what is there.
    for _ in range(2):
        bank = FeatureBank.build(outputs, data, tmp_path, batch_size=4, batches_per_shard=2)
    whole, part = bank.as_batch("train"), bank.as_batch("train", start=6, stop=19)
    np.testing.assert_array_equal(part.x["logits"], whole.x["logits"][6:19])
    np.testing.assert_array_equal(part.i, whole.i[6:19])
    assert bank.as_batch("test", start=5, stop=100).y.shape == (2,)
    with pytest.raises(ValueError, match="`start` must be from 0 to below 7"):
        bank.as_batch("test", start=7)


def test_epinet_from_the_bank_is_the_epinet_through_the_frozen_base(tmp_path, getkey):
    base_key, enn_key, fit_key = named_keys(getkey(), "base", "enn", "fit")
    base, source = make_base(base_key), make_data()["train"]
    bank = FeatureBank.open(build(base, tmp_path)._shards.path)
    options = {"out_size": 10, "index_dim": 3, "hidden": (5,), "key": enn_key}
    through_base = attach(base, example=jnp.asarray(source.x[0]), **options)
    from_bank = attach(stored_base, example=bank.example(), **options)

    def trained(enn, data):
        return fit(enn, data, CrossEntropy(l2=1e-3), num_steps=8, batch_size=8, progress=False, key=fit_key).enn

    expected, found = trained(through_base, source.as_batch()), trained(from_bank, bank.as_batch("train"))
    start = jax.tree.leaves(eqx.filter(through_base.learnable, eqx.is_array))
    moved = jax.tree.leaves(eqx.filter(expected.learnable, eqx.is_array))
    assert max(float(jnp.abs(a - b).max()) for a, b in zip(start, moved, strict=True)) > 1e-3
    for a, b in zip(moved, jax.tree.leaves(eqx.filter(found.learnable, eqx.is_array)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    # The trained epinet goes back onto the base that it never saw.
    whole = eqx.tree_at(lambda enn: enn.base, found, Frozen(base))
    x, z = jnp.asarray(source.x[0]), jnp.ones(3)
    np.testing.assert_allclose(whole(x, z), expected(x, z), atol=1e-4)


def test_half_precision_is_half_the_size(tmp_path, getkey):
    base = make_base(getkey())
    whole, half = build(base, tmp_path / "a"), build(base, tmp_path / "b", dtype="float16")
    a, b = whole.as_batch("train"), half.as_batch("train")
    assert b.x["features"].dtype == jnp.float32
    np.testing.assert_allclose(a.x["features"], b.x["features"], rtol=2e-3, atol=1e-4)
    stored = safetensors.numpy.load_file(tmp_path / "b" / "test-00000-of-00001.safetensors")
    assert stored["features"].dtype == stored["logits"].dtype == np.float16


def test_pixels_are_normalized(tmp_path, getkey):
    pixels = np.arange(6 * 64, dtype=np.uint32).astype(np.uint8).reshape(6, 1, 8, 8)
    source = ArrayDataset(pixels, np.zeros(6, int), num_classes=10)
    base, normalization = make_base(getkey()), Normalization((0.5,), (0.25,))
    bank = build(base, tmp_path, {"test": source}, normalization=normalization)
    expected = jax.vmap(base)(jnp.asarray(normalization(pixels)))
    np.testing.assert_allclose(bank.as_batch("test").x["logits"], expected, atol=1e-5)


class Interrupted:
    """A data set that can be read only so often."""

    def __init__(self, source, limit):
        self.source, self.left, self.read = source, limit, []

    def __len__(self):
        return len(self.source)

    def __getitem__(self, position):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        self.read.append(position)
        return self.source[position]

    def describe(self, position):
        return self.source.describe(position)


@pytest.mark.parametrize("limit", [0, 7, 8, 21, 29])
def test_build_goes_on_where_it_ended(tmp_path, getkey, limit):
    base, source = make_base(getkey()), make_data()["train"]
    expected = build(base, tmp_path / "whole", {"train": source}).as_batch("train")
    path = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        build(base, path, {"train": Interrupted(source, limit)})
    if path.exists():
        assert all(not name.startswith(".") for name in os.listdir(path))
        if (path / "bank.json").exists():
            with pytest.raises(ValueError, match="must be finished"):
                FeatureBank.open(path)
    again = Interrupted(source, 1000)
    found = build(base, path, {"train": again}).as_batch("train")
    done = limit // 8 * 8
    # What was written is not read again, except for one batch that is compared.
    assert again.read == [*range(4 if done else 0), *range(done, 30)]
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(a, b)


def test_damaged_shard_is_named_and_written_again(tmp_path, getkey):
    base, source = make_base(getkey()), make_data()["train"]
    expected = build(base, tmp_path, {"train": source}).as_batch("train")
    shard = tmp_path / "train-00001-of-00004.safetensors"
    whole = shard.read_bytes()
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    for content, words in (
        (bytes(damaged), "must have the checksum"),
        (whole[:-3], "is truncated"),
        (None, "is missing"),
    ):
        shard.unlink()
        if content is not None:
            shard.write_bytes(content)
        with pytest.raises(ValueError, match=f"train-00001-of-00004.safetensors' .*{words}"):
            FeatureBank.open(tmp_path)
        again = Interrupted(source, 1000)
        found = build(base, tmp_path, {"train": again})
        # Workers and buffers aside, the one shard is all that is computed, after the batch that is compared.
        assert again.read == [*range(4), *range(8, 16)]
        np.testing.assert_array_equal(found.as_batch("train").x["features"], expected.x["features"])
        assert shard.read_bytes() == whole


def test_bank_of_another_base_or_data_is_refused(tmp_path, getkey):
    base = make_base(getkey())
    build(base, tmp_path)
    with pytest.raises(ValueError, match="`embed` and `datasets` must be those .*features differ"):
        build(make_base(getkey()), tmp_path)
    with pytest.raises(ValueError, match="other values of feature_dim"):
        build(make_base(getkey(), hidden=7), tmp_path)
    with pytest.raises(ValueError, match="other values of splits, num_shards"):
        build(base, tmp_path, make_data(20))
    with pytest.raises(ValueError, match="other values of dtype"):
        build(base, tmp_path, dtype="float16")
    (tmp_path / "bank.json").write_text("[]")
    with pytest.raises(ValueError, match="bank.json' must be the index"):
        FeatureBank.open(tmp_path)


def test_wrong_arguments_are_refused(tmp_path, getkey, as_user):
    base, data = make_base(getkey()), make_data()
    with pytest.raises(ValueError, match="`split` must be a known name, there are train, test; got 'dev'"):
        build(base, tmp_path / "a").as_batch("dev")
    with pytest.raises(ValueError, match="`embed` must map one example to a pair of vectors"):
        FeatureBank.build(base, data, tmp_path / "b")
    with pytest.raises(ValueError, match="`dtype` must be"):
        build(base, tmp_path / "b", dtype="float64")
    with pytest.raises(ValueError, match="must be a word"):
        build(base, tmp_path / "b", {"../evil": data["test"]})
    with pytest.raises(ValueError, match="`features` of train-.* must be finite in float16"):
        FeatureBank.build(lambda x: (x[0, 0], 1e6 + x[0, 1]), data, tmp_path / "c", dtype="float16")
    with pytest.raises(ValueError, match="must hold labels from 0 to 7; got 8"):
        FeatureBank.build(lambda x: (x[0, 0], x[0, 1]), data, tmp_path / "d")
    with pytest.raises(ValueError, match="`datasets` must have at least one split"):
        FeatureBank.build(base.with_features, {}, tmp_path / "e")


def edit(path, change):
    """Change an index as an older version wrote it, without a checksum."""
    index = json.loads((path / "bank.json").read_text())
    index.pop("checksum", None)
    change(index)
    (path / "bank.json").write_text(json.dumps(index))


EDITS = [
    (lambda index: index["spec"].update(feature_dim=7), "must hold what its index states"),
    (lambda index: index["spec"].update(feature_dim=-6), "missing or impossible entries"),
    (lambda index: index["spec"].update(num_classes=11), "must hold what its index states"),
    (lambda index: index["spec"].update(dtype="float16"), "must hold what its index states"),
    (lambda index: index["spec"].update(dtype=["float32"]), "missing or impossible entries"),
    (lambda index: index["spec"].update(shard_size=4), "missing or impossible entries"),
    (lambda index: index["spec"].update(shard_size="8"), "missing or impossible entries"),
    (lambda index: index["spec"]["splits"].update(train=31), "lists other shards than"),
    (lambda index: index["spec"]["splits"].update({"../x": 8}), "missing or impossible entries"),
    (lambda index: index["spec"].update(splits={}), "missing or impossible entries"),
    (lambda index: index["spec"].update(splits=[30, 7]), "missing or impossible entries"),
    (lambda index: index["spec"].pop("feature_dim"), "missing or impossible entries"),
    (lambda index: index["spec"].pop("splits"), "missing or impossible entries"),
    (lambda index: index["spec"].pop("num_shards"), "missing or impossible entries"),
    (lambda index: index["shards"].append(index["shards"][0]), "lists a shard twice"),
    (lambda index: index["shards"].insert(0, dict(index["shards"][1])), "lists a shard twice"),
    (lambda index: index["shards"][0].pop("file"), "must list shards with"),
    (lambda index: index["shards"][0].pop("sha256"), "must list shards with"),
    (lambda index: index["shards"][0].update(sha256=None), "must list shards with"),
    (lambda index: index["shards"][0].update(num_examples=9), "lists other shards than"),
    (lambda index: index.update(shards={}), "must list shards with"),
    (lambda index: index.pop("shards"), "must list shards with"),
]


@pytest.mark.parametrize("number", range(len(EDITS)))
@pytest.mark.parametrize("verify", [False, True])
def test_edited_indices_are_refused(tmp_path, getkey, number, verify):
    change, words = EDITS[number]
    build(make_base(getkey()), tmp_path)
    edit(tmp_path, lambda index: None)
    FeatureBank.open(tmp_path, verify=verify)
    edit(tmp_path, change)
    with pytest.raises(ValueError, match=words):
        FeatureBank.open(tmp_path, verify=verify)


def test_an_index_has_a_checksum(tmp_path, getkey):
    build(make_base(getkey()), tmp_path)
    path = tmp_path / "bank.json"
    path.write_text(path.read_text().replace('"train": 30', '"train": 29'))
    with pytest.raises(ValueError, match="was changed after it was written: its checksum differs"):
        FeatureBank.open(tmp_path)


@pytest.mark.parametrize("name", ["y", "i"])
@pytest.mark.parametrize("value", [0.5, np.int64(2**32 + 1)])
def test_labels_and_numbers_are_never_rounded_or_wrapped(tmp_path, getkey, name, value):
    class Relabeled:
        def __init__(self, source):
            self.source, self.describe = source, source.describe

        def __len__(self):
            return len(self.source)

        def __getitem__(self, position):
            return {**self.source[position], name: value}

    with pytest.raises(ValueError, match="must hold"):
        build(make_base(getkey()), tmp_path, {"train": Relabeled(make_data()["train"])})


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_features_of_other_precisions_are_imported(tmp_path, dtype):
    content = {name: v.astype(dtype) if v.dtype == np.float32 else v for name, v in dumped().items()}
    safetensors.numpy.save_file(content, tmp_path / "x.safetensors")
    bank = import_features({"train": tmp_path / "x.safetensors"}, tmp_path / "bank")
    np.testing.assert_array_equal(bank.as_batch("train").x["features"], content["features"].astype(np.float32))


def test_source_streams_what_as_batch_holds(tmp_path, getkey):
    bank = build(make_base(getkey()), tmp_path)
    whole = bank.as_batch("train")
    loader = Loader(
        bank.source("train"), batch_size=7, shuffle=False, num_epochs=1, drop_remainder=False, num_threads=2, key=None
    )
    with loader:
        batches = list(loader)
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(joined), strict=True):
        np.testing.assert_array_equal(a, b)


def dumped(count=10):
    rng = np.random.Generator(np.random.Philox(key=2))
    return {
        "features": rng.normal(size=(count, 4)).astype(np.float32),
        "logits": rng.normal(size=(count, 3)).astype(np.float32),
        "labels": rng.integers(0, 3, count),
        "ids": np.arange(count)[::-1].copy(),
    }


def test_features_of_other_frameworks_are_imported(tmp_path):
    train, test = dumped(), dumped(5)
    np.savez(tmp_path / "train.npz", **train)
    safetensors.numpy.save_file(test, tmp_path / "test.safetensors")
    files = {"train": tmp_path / "train.npz", "test": tmp_path / "test.safetensors"}
    bank = import_features(files, tmp_path / "bank", ids="ids", shard_size=4)
    for split, content in (("train", train), ("test", test)):
        batch = FeatureBank.open(tmp_path / "bank").as_batch(split)
        np.testing.assert_array_equal(batch.x["features"], content["features"])
        np.testing.assert_array_equal(batch.x["logits"], content["logits"])
        np.testing.assert_array_equal(batch.y, content["labels"])
        np.testing.assert_array_equal(batch.i, content["ids"])
    assert (bank.num_classes, bank.feature_dim) == (3, 4)
    blind = import_features({"train": files["train"]}, tmp_path / "blind", logits=None, num_classes=5)
    assert blind.as_batch("train").x["logits"].shape == (10, 5) and not blind.as_batch("train").x["logits"].any()
    assert blind.as_batch("train").i.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": None}, "must have an array `features`; it has logits, labels, ids"),
        ({"labels": np.zeros(9, int)}, "`features` of .* must be floats with 9 rows"),
        ({"labels": np.full(10, 3)}, "must hold labels from 0 to 2; got 3"),
        ({"labels": np.zeros(10)}, "`labels` of .* must be a vector of integers"),
        ({"labels": np.zeros(0, int)}, "`labels` of .* must be a vector of integers"),
        ({"features": np.full((10, 4), np.nan)}, "`features` of .* must be finite"),
        ({"logits": np.zeros((10, 3), int)}, "`logits` of .* must be floats"),
        ({"ids": np.zeros((10, 1), int)}, "`ids` of .* must hold 10 integers as numbers"),
        ({"ids": np.full(10, 2**40)}, "`ids` of .* must hold numbers that fit into 32 bits"),
        ({"features": np.array([object()] * 10)}, "must be an npz file of plain arrays.*allow_pickle=False"),
    ],
)
def test_wrong_features_are_refused(tmp_path, change, words):
    content = {name: value for name, value in {**dumped(), **change}.items() if value is not None}
    np.savez(tmp_path / "x.npz", **content)
    with pytest.raises(ValueError, match=words):
        import_features({"train": tmp_path / "x.npz"}, tmp_path / "bank", ids="ids")


def test_files_that_are_none_are_refused(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 no")
    (tmp_path / "x.safetensors").write_bytes(json.dumps({}).encode())
    (tmp_path / "x.pkl").write_bytes(b"")
    for name, words in (
        ("x.npz", "must be an npz file of plain arrays"),
        ("x.safetensors", "must be a whole safetensors file"),
        ("x.pkl", "must end in"),
    ):
        with pytest.raises(ValueError, match=words):
            import_features({"train": tmp_path / name}, tmp_path / "bank")
    with pytest.raises(FileNotFoundError, match="absent.npz' is missing"):
        import_features({"train": tmp_path / "absent.npz"}, tmp_path / "bank")
    with pytest.raises(ValueError, match="Either `logits` or `num_classes` must be given"):
        import_features({"train": tmp_path / "x.npz"}, tmp_path / "bank", logits=None)
    assert not (tmp_path / "bank").exists()
