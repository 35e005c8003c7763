"""The prior that reads pixels, on a made-up bank with made-up images: its place, its rows, its refusals."""

import io

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx.data import IMAGENET_NORMALIZATION, LinearLayer, PackedBank, pack_bank
from epinet_eqx.epinet import Reads, conv_prior
from reproduce.banks import decoded_batches
from reproduce.configs.banked import Folds, StoredEpinet
from reproduce.configs.imagenet import ConvRun
from reproduce.configs.images import ConvRecipe
from reproduce.errors import ReproduceError
from reproduce.experiments import imagenet_conv
from reproduce.inputs import NOTHING, Inputs
from reproduce.registry import REGISTRY
from reproduce.style import style_context

pytestmark = pytest.mark.once

NUM_IMAGES, NUM_CLASSES = 40, 5
CONFIG = ConvRun(
    folds=Folds(num_tuning=8, tuning_samples=4, temperatures=(1.0,)),
    recipe=StoredEpinet(index_dim=2, hidden=(4,), num_steps=2, batch_size=8),
    conv=ConvRecipe(channels=(2, 2), kernels=(10, 10), strides=(10, 10)),
    scales=(0.0, 1.0),
    num_samples=4,
    num_folds=1,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    image = pytest.importorskip("PIL.Image")
    rng, found = np.random.default_rng(0), tmp_path_factory.mktemp("images")
    streams = [io.BytesIO() for _ in range(NUM_IMAGES)]
    for stream in streams:
        image.fromarray(rng.integers(0, 255, (224, 224, 3), np.uint8)).save(stream, "PNG")
    data = [stream.getvalue() for stream in streams]
    np.savez(
        found / "val_0.npz",
        data=np.frombuffer(b"".join(data), np.uint8),
        offsets=np.cumsum([0, *map(len, data)]),
        labels=np.arange(NUM_IMAGES) % NUM_CLASSES,
    )
    (found / "train_like.npz").write_bytes((found / "val_0.npz").read_bytes())
    return found


@pytest.fixture
def bank(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    linear = LinearLayer(rng.normal(size=(NUM_CLASSES, 6)), rng.normal(size=NUM_CLASSES))
    rows = {"features": rng.normal(size=(NUM_IMAGES, 6)), "y": np.arange(NUM_IMAGES) % NUM_CLASSES}
    pack_bank(tmp_path / "own.npz", {"val": rows}, linear=linear, compress=False)
    found = PackedBank(tmp_path / "own.npz")
    monkeypatch.setattr(imagenet_conv, "bank_of", lambda *_: found)
    return found


def test_the_basis_is_what_the_prior_adds_along_each_axis_of_the_index(folder, bank):
    found = imagenet_conv.conv_basis(CONFIG, folder, bank.as_batch("val"), key=jr.key(3))
    assert found.shape == (NUM_IMAGES, 2, NUM_CLASSES)
    reads = conv_prior(
        (3, 224, 224), 2, NUM_CLASSES, channels=(2, 2), kernels=(10, 10), strides=(10, 10), key=jr.key(3)
    ).enn.content
    assert isinstance(reads, Reads)
    term = reads.enn
    pixels, _ = next(decoded_batches([folder / "val_0.npz"]))
    embedding = term.embed(jnp.asarray(IMAGENET_NORMALIZATION(pixels[3])))
    np.testing.assert_allclose(term.heads(embedding, jnp.eye(2)), found[3], rtol=1e-4, atol=1e-5)


def test_the_conv_prior_changes_epinets_and_is_drawn(folder, bank):
    rows = imagenet_conv.run(CONFIG, inputs=Inputs(data_dir=folder), key=jr.key(0))
    without, paper = ([row for row in rows if row["value"] == scale] for scale in CONFIG.scales)
    assert len(without) == len(paper) == CONFIG.folds.blocks_per_fold
    assert all(a["joint"] != b["joint"] for a, b in zip(without, paper, strict=True))
    with style_context():
        assert len(REGISTRY["rep_conv"].draw(rows).axes) == 3


def test_other_images_than_those_of_the_bank_are_refused(folder, bank, getkey):
    data = bank.as_batch("val")
    other = eqx.tree_at(lambda own: own.y, data, jnp.roll(data.y, 1))
    with pytest.raises(ValueError, match="must hold the 40 images of the bank in its order; got 40 images"):
        imagenet_conv.conv_basis(CONFIG, folder, other, key=getkey())
    with pytest.raises(ReproduceError, match="`--data-dir` must be given"):
        imagenet_conv.run(CONFIG, inputs=NOTHING, key=getkey())
