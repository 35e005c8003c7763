"""Damaged files of every format that is read: the answer is right, or a sentence.

Each target writes valid files, which are mutated by a seeded generator. Formats with checksums must give what was
written or an error; the others must give arrays of the right kind or an error. An error is a ValueError or an OSError
whose message is a sentence of ours. `pytest -m long` tries many more inputs than the normal tests. What broke a reader
once is in the tests of that reader.
"""

import collections
import gzip
import io
import json
import pickle
import re
import struct
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
import safetensors.numpy

import epinet_eqx as epi
from epinet_eqx._pickled import read_pickled_arrays
from epinet_eqx.data import (
    CenterCrop,
    Decode,
    FeatureBank,
    ImageFolder,
    LinearLayer,
    Normalization,
    PackedBank,
    RandomResizedCrop,
    RecordSource,
    cifar,
    import_features,
    pack_bank,
    read_idx,
    write_records,
)
from epinet_eqx.training import CheckpointError, Checkpoints, JsonlMetrics, init_state
from epinet_eqx.weights import load_safetensors_weights, read_torch_file
from reproduce import record

pytestmark = pytest.mark.once

SENTENCE = "must |is not a whole image|is missing|lists |was changed|has a specification|no intact checkpoint"
INTERESTING = [0, 1, 0x7F, 0x80, 0xFF]


def rng_of(seed):
    return np.random.Generator(np.random.Philox(key=seed))


def mutated(content, rng):
    """Return content after one to four changes of the kinds that find most."""
    content = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(content) + 1))
        # Headers are short and hold what readers trust.
        if rng.random() < 0.5:
            at = int(rng.integers(min(len(content), 600) + 1))
        width = int(rng.integers(1, 9))
        match int(rng.integers(7)):
            case 0 if content:
                content[at % len(content)] ^= 1 << int(rng.integers(8))
            case 1:
                del content[at:]
            case 2:
                content[at : at + width] = bytes([int(rng.choice(INTERESTING))]) * width
            case 3:
                content[at:at] = rng.bytes(width)
            case 4:
                del content[at : at + width]
            case 5:
                other = int(rng.integers(len(content) + 1))
                content[at : at + 4 * width] = content[other : other + 4 * width]
            case _:
                content[at:at] = content[at : at + 64] * width
    return bytes(content)


def encode(kind, mode="RGB", **options):
    from PIL import Image

    pixels = rng_of(5).integers(0, 256, (40, 50, 4), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def equal_trees(a, b):
    return all(
        np.array_equal(x, y) and x.dtype == y.dtype for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


class SavedModel:
    """A saved model: what was saved, or an error."""

    def __init__(self, folder):
        self.tree = {"a": jnp.arange(700.0), "b": [jnp.ones((2, 3), jnp.bfloat16), jr.key(3)], "c": jnp.int32(3)}
        self.path = folder / "x.safetensors"
        epi.save(self.path, self.tree, {"width": 3})
        self.files = [self.path]

    def read(self):
        assert epi.read_header(self.path).config == {"width": 3}
        assert eqx.tree_equal(epi.load(self.path, self.tree), self.tree)


class Bank:
    """A feature bank: what was stored, or an error."""

    def __init__(self, folder):
        rng = rng_of(1)
        arrays = {"features": rng.normal(size=(9, 3)), "logits": rng.normal(size=(9, 4)), "labels": np.arange(9) % 4}
        np.savez(folder / "x.npz", **arrays)
        self.path = folder / "bank"
        import_features({"train": folder / "x.npz"}, self.path, shard_size=4)
        self.files = sorted(self.path.iterdir())
        self.stored = FeatureBank.open(self.path).as_batch("train")

    def read(self):
        bank = FeatureBank.open(self.path)
        assert equal_trees(bank.as_batch("train"), self.stored)
        source = bank.source("train")
        assert [int(source[n]["y"]) for n in range(9)] == [n % 4 for n in range(9)]


class Records:
    """ArrayRecord shards: what was written, or an error."""

    def __init__(self, folder):
        for name in "ab":
            (folder / "images" / name).mkdir(parents=True)
            (folder / "images" / name / "0.png").write_bytes(encode("PNG"))
            (folder / "images" / name / "1.jpg").write_bytes(encode("JPEG"))
        source = ImageFolder(folder / "images")
        self.path = folder / "records"
        write_records(source, self.path, num_classes=2, shard_size=3)
        self.files = sorted(self.path.iterdir())
        self.stored = [source[n] for n in range(4)]

    def read(self):
        source = RecordSource(self.path)
        assert [source[n] for n in range(4)] == self.stored and source.describe(3)


class Images:
    """Encoded images: pixels of the right shape, or an error."""

    def __init__(self, folder):
        content = {
            "a.jpg": encode("JPEG"),
            "b.jpg": encode("JPEG", "L", progressive=True),
            "c.jpg": encode("JPEG", "CMYK"),
            "d.png": encode("PNG", "RGBA"),
            "e.png": encode("PNG", "P"),
            "f.png": encode("PNG", "LA"),
            "g.png": encode("PNG", "1"),
            "h.webp": encode("WEBP", "RGBA", lossless=True),
            "i.webp": encode("WEBP"),
        }
        self.files = [folder / name for name in content]
        for path in self.files:
            path.write_bytes(content[path.name])

    def read(self):
        for path in self.files:
            # A truncated file may hold metadata that Pillow warns about.
            with warnings.catch_warnings(action="ignore"):
                content = path.read_bytes()
                for transform, size in ((Decode(), None), (CenterCrop(16), 16), (RandomResizedCrop(16), 16)):
                    pixels = transform(content, rng_of(0))
                    assert pixels.dtype == np.uint8 and pixels.shape[0] == 3
                    assert size is None or pixels.shape[1:] == (16, 16)


class Idx:
    """IDX files: bytes, or an error."""

    def __init__(self, folder):
        array = rng_of(2).integers(0, 256, (3, 5, 4), dtype=np.uint8)
        content = b"\0\0\x08\x03" + struct.pack(">3I", *array.shape) + array.tobytes()
        self.files = [folder / "x", folder / "x.gz"]
        for path, data in zip(self.files, (content, gzip.compress(content)), strict=True):
            path.write_bytes(data)

    def read(self):
        for path in self.files:
            assert read_idx(path).dtype == np.uint8


class Cifar:
    """CIFAR in each of its formats: labelled images, or an error."""

    def __init__(self, folder):
        pixels = rng_of(3).integers(0, 256, (2, 3072), dtype=np.uint8)
        for name in ("bin", "py", "py4", "sheets"):
            (folder / name).mkdir()
        np.concatenate([np.array([[3], [9]], np.uint8), pixels], axis=1).tofile(folder / "bin" / "test_batch.bin")
        content = {b"data": pixels, b"labels": [3, 9], b"filenames": [b"a.png", b"b.png"]}
        (folder / "py" / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
        (folder / "py4" / "test_batch").write_bytes(pickle.dumps(content, protocol=4))
        from PIL import Image

        Image.fromarray(pixels.reshape(64, 32, 3)).save(folder / "sheets" / "test_00.webp", lossless=True)
        np.savez(folder / "sheets" / "labels.npz", test=np.array([3, 9]))
        self.folder = folder
        self.files = sorted(path for path in folder.rglob("*") if path.is_file())

    def read(self):
        for name in ("bin", "py", "py4", "sheets"):
            data = cifar(self.folder / name, "test")
            assert data.x.shape[1:] == (3, 32, 32) and 0 <= data.y.min() <= data.y.max() < 10


class Pickled:
    """Pickles of arrays: a dictionary of plain values, or an error."""

    def __init__(self, folder):
        rng = rng_of(4)
        content = {
            "conv": [rng.normal(size=(2, 3)), rng.normal(size=4).astype(np.float32)],
            "n": 3,
            "names": ["a", "b"],
        }
        self.files = [folder / f"x{protocol}" for protocol in (2, 3, 4)]
        for protocol, path in enumerate(self.files, start=2):
            path.write_bytes(pickle.dumps(content, protocol=protocol))

    def read(self):
        for path in self.files:
            for value in read_pickled_arrays(path).values():
                assert isinstance(value, np.ndarray | list | str | bytes | int | float)


class Torch:
    """PyTorch files: arrays, or an error."""

    def __init__(self, folder):
        import test_torch_files as torch_files

        with pytest.MonkeyPatch.context() as patch:
            torch = torch_files.make_torch(patch)
            arrays = torch_files.examples()
            named = ((name, torch_files.tensor(str(k), value)) for k, (name, value) in enumerate(arrays.items()))
            content = collections.OrderedDict(named)
            self.files = [folder / "zip.pth", folder / "legacy.pth"]
            for path, legacy in zip(self.files, (False, True), strict=True):
                torch_files.write(path, torch, content, legacy)

    def read(self):
        for path in self.files:
            assert all(isinstance(value, np.ndarray) for value in read_torch_file(path).values())


class Weights:
    """Weights under other names: a network of finite parameters, or an error."""

    def __init__(self, folder):
        import test_weights

        self.network, self.state = eqx.filter_eval_shape(test_weights.NETWORKS["cifar"])
        self.files = [folder / "x.safetensors"]
        safetensors.numpy.save_file(test_weights.state_dict("cifar"), self.files[0])

    def read(self):
        network, _ = load_safetensors_weights(self.network, self.state, self.files[0], naming="cifar")
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array)))


class Features:
    """Features of other frameworks: a bank, or an error."""

    def __init__(self, folder):
        rng = rng_of(6)
        arrays = {
            "features": rng.normal(size=(5, 3)).astype(np.float32),
            "logits": rng.normal(size=(5, 2)).astype(np.float16),
            "labels": np.arange(5) % 2,
        }
        self.folder = folder
        self.files = [folder / "a.npz", folder / "b.npz", folder / "c.safetensors"]
        np.savez(self.files[0], **arrays)
        np.savez_compressed(self.files[1], **arrays)
        safetensors.numpy.save_file(arrays, self.files[2])
        self.count = 0

    def read(self):
        for path in self.files:
            self.count += 1
            batch = import_features({"train": path}, self.folder / f"bank{self.count}").as_batch("train")
            assert np.isfinite(batch.x["features"]).all() and batch.y.min() >= 0


class Json:
    """Normalization files: numbers that make sense, or an error."""

    def __init__(self, folder):
        self.files = [folder / "x.json"]
        self.files[0].write_text(json.dumps({"mean": [0.5, 0.25, 0.125], "std": [0.25, 0.5, 1.0]}))

    def read(self):
        normalization = Normalization.read(self.files[0])
        assert len(normalization.mean) == len(normalization.std) and all(value > 0 for value in normalization.std)


class Packed:
    """A bank in one file, compressed or not: what was stored, or an error."""

    def __init__(self, folder):
        rng = rng_of(7)
        linear = LinearLayer(rng.normal(size=(4, 3)), rng.normal(size=4))
        rows = {"features": rng.normal(size=(9, 3)), "logits": rng.normal(size=(9, 4)), "y": np.arange(9) % 4}
        logits = {"logits": rows["logits"], "y": rows["y"]}
        self.files = [folder / "a", folder / "b", folder / "c"]
        pack_bank(self.files[0], {"train": rows, "test": rows}, linear=linear)
        pack_bank(self.files[1], {"train": rows, "test": rows}, compress=False)
        pack_bank(self.files[2], {"train": logits, "test": logits}, compress=False)
        self.stored = [self.batches(path) for path in self.files]

    def batches(self, path):
        bank = PackedBank(path)
        return [bank.as_batch("train"), bank.as_batch("test"), bank.example()]

    def read(self):
        for path, stored in zip(self.files, self.stored, strict=True):
            assert equal_trees(self.batches(path), stored)


class Checkpoint:
    """A checkpoint of training: the state that was written, or an error."""

    def __init__(self, folder):
        pytest.importorskip("orbax.checkpoint")
        model = {"a": jnp.arange(2000.0), "b": jnp.ones((2, 3), jnp.bfloat16)}
        self.state = init_state(model, optax.sgd(0.1), key=jr.key(3))
        self.folder = folder
        Checkpoints(folder).save(self.state)
        self.files = sorted(path for path in folder.rglob("*") if path.is_file())

    def read(self):
        # What is not whole is skipped with a warning; here nothing is left then.
        with warnings.catch_warnings(action="ignore"):
            assert eqx.tree_equal(Checkpoints(self.folder).restore(self.state), self.state)


class RunRecord:
    """A record of `reproduce`: what was written, or a reason to compute it again."""

    def __init__(self, folder):
        self.files = [folder / "x.json"]
        known = {
            "artifact": "x",
            "hash": "0a1b",
            "version": "1",
            "config": {"sizes": (1, 2), "names": {10: "a", 9: "b"}},
        }
        rows = [{"seed": 3, "loss": 0.12345678901234567, "agent": "epinet", "is_best": True}]
        made = record.Record(unit="u", seed=3, rows=rows, provenance={"seconds": 1.5}, **known)
        self.stored = record.write(self.files[0], made).rows

    def read(self):
        found = record.look_up(self.files[0], wanted="0a1b", version="1")
        if found.record is None:
            raise ValueError(f"must be whole: {found.reason}")
        assert found.record.rows == self.stored


class Metrics:
    """Metrics of a run as lines of JSON: lines up to the step, or an error; no line is lost without a word."""

    def __init__(self, folder):
        self.files = [folder / "metrics.jsonl"]
        metrics = JsonlMetrics(self.files[0])
        metrics.start(0)
        for step in range(1, 6):
            metrics.log(step, {"loss": 1 / step, "accuracy": float("nan")})
        metrics.close()

    def read(self):
        before = self.files[0].read_bytes().count(b"\n")
        metrics = JsonlMetrics(self.files[0])
        metrics.start(10**400)
        metrics.close()
        lines = self.files[0].read_text().splitlines()
        assert len(lines) >= before - 1
        assert all(isinstance(json.loads(line)["step"], int) for line in lines)


TARGETS = {
    kind.__name__: kind
    for kind in (
        *(SavedModel, Bank, Packed, Checkpoint, Records, Images, Idx, Cifar),
        *(Pickled, Torch, Weights, Features, Json, RunRecord, Metrics),
    )
}
# These take a tenth of a second per input.
SLOW = ("Weights", "Checkpoint")


def attempt(target, path, content):
    """Read once with one file replaced; raise unless the answer is right or a sentence."""
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        target.read()
    except (ValueError, OSError, CheckpointError) as error:
        assert re.search(SENTENCE, str(error)), f"not a sentence of ours: {error}"
    finally:
        path.write_bytes(whole)


def run(target, count, first=0):
    """Try so many inputs."""
    target.read()
    for seed in range(first, first + count):
        rng = rng_of(seed)
        path = target.files[seed % len(target.files)]
        attempt(target, path, mutated(path.read_bytes(), rng))


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_give_the_right_answer_or_a_sentence(tmp_path, name):
    run(TARGETS[name](tmp_path), 8 if name in SLOW else 40)


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_many_damaged_files_give_the_right_answer_or_a_sentence(tmp_path, name):
    run(TARGETS[name](tmp_path), 300 if name in SLOW else 3000, first=1000)
