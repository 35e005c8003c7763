"""Properties of data and of saved models for any shapes, types and numbers of classes, by hypothesis."""

import json
import pathlib
import pickle
import struct
import tempfile

import equinox as eqx
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import epinet_eqx as epi
from epinet_eqx._pickled import read_pickled_arrays
from epinet_eqx.data import ArrayDataset, Decode, Loader, Normalization, import_features, read_idx

pytestmark = pytest.mark.once

# The same examples in each run; files and batches are too slow for more.
settings.register_profile("files", derandomize=True, deadline=None, database=None, max_examples=30)
settings.load_profile("files")

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def numbers(shape, seed, dtype=np.float32):
    return (np.random.Generator(np.random.Philox(key=seed)).normal(size=shape) * 10).astype(dtype)


@st.composite
def datasets(draw):
    """A data set of any shape and type of input, with one class or more, and the arrays that it was made of."""
    num_classes, count = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    y = draw(st.lists(st.integers(0, num_classes - 1), min_size=count, max_size=count))
    shape = (count, *draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.uint8, np.int32]))
    x = numbers(shape, draw(st.integers(0, 99)), dtype) if np.dtype(dtype).kind == "f" else np.ones(shape, dtype)
    kind = draw(st.sampled_from([np.uint8, np.int8, np.int64, np.uint64]))
    i = draw(st.none() | st.permutations(range(100, 100 + count)))
    return ArrayDataset(x, np.array(y, kind), i, num_classes), x, y, i


@given(datasets())
def test_a_data_set_holds_what_it_was_made_of(made):
    data, x, y, i = made
    expected = list(range(len(y))) if i is None else list(i)
    batch = data.as_batch()
    assert batch.x.shape == x.shape and batch.x.dtype == x.dtype and np.array_equal(batch.x, x)
    assert batch.y.tolist() == y and batch.i.tolist() == expected
    assert [int(data[n]["y"]) for n in range(len(data))] == y
    part = data.take(slice(len(y) // 2, None))
    assert part.y.tolist() == y[len(y) // 2 :] and part.i.tolist() == expected[len(y) // 2 :]


@given(datasets(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.booleans(), st.integers(0, 99))
def test_a_loader_visits_each_example_once_per_epoch(made, per_process, processes, epochs, shuffle, seed):
    data, _, y, _ = made
    size = per_process * processes
    key = jax.random.key(seed)
    total = epochs * len(y)
    if total < size:
        with pytest.raises(ValueError, match="`batch_size` must be at most the number of examples"):
            Loader(data, batch_size=size, num_epochs=epochs, key=key)
        return
    options = {"batch_size": size, "shuffle": shuffle, "num_epochs": epochs, "key": key}
    whole = [batch.i for batch in Loader(data, **options)]
    assert [len(i) for i in whole] == [size] * (total // size)
    parts = [list(Loader(data, **options, process_index=p, process_count=processes)) for p in range(processes)]
    for t, batch in enumerate(whole):
        assert np.concatenate([part[t].i for part in parts]).tolist() == batch.tolist()
    rest = [batch.i for batch in Loader(data, **options, drop_remainder=False)]
    assert sorted(np.concatenate(rest).tolist()) == sorted(data.i.tolist() * epochs)


@given(
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(FLOATS),
    st.integers(1, 10),
    st.integers(0, 9),
)
def test_a_bank_holds_what_was_imported(count, width, num_classes, dtype, shard_size, seed):
    rng = np.random.Generator(np.random.Philox(key=seed))
    arrays = {
        "features": numbers((count, width), seed, dtype),
        "logits": numbers((count, num_classes), seed + 1, dtype),
        "labels": rng.integers(0, num_classes, count).astype(np.uint16),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        safetensors.numpy.save_file(arrays, path / "x.safetensors")
        bank = import_features({"train": path / "x.safetensors"}, path / "bank", shard_size=shard_size)
        batch, source = bank.as_batch("train"), bank.source("train")
        for name in ("features", "logits"):
            expected = arrays[name].astype(np.float32)
            assert np.array_equal(batch.x[name], expected)
            assert all(np.array_equal(source[n]["x"][name], expected[n]) for n in range(count))
        assert batch.y.tolist() == arrays["labels"].tolist() and batch.i.tolist() == list(range(count))


@st.composite
def trees(draw):
    """A tree of arrays of any shape and type, with any names; x64 must be set for 64 bits."""
    dtypes = ["bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32"]
    x64 = draw(st.booleans())
    dtypes += ["int64", "float64"] if x64 else []
    leaves = st.tuples(SHAPES, st.sampled_from(dtypes), st.integers(0, 99))
    names = st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"]), min_size=1, max_size=6)
    return x64, draw(st.dictionaries(names, leaves | st.lists(leaves, max_size=2), max_size=4))


@given(trees(), st.dictionaries(st.text(max_size=8), JSON, max_size=3))
def test_what_is_loaded_is_what_was_saved(described, config):
    x64, tree = described
    with jax.enable_x64(x64), tempfile.TemporaryDirectory() as folder:
        is_leaf = lambda node: isinstance(node, tuple)  # noqa: E731
        tree = jax.tree.map(lambda leaf: jnp.asarray(numbers(leaf[0], leaf[2])).astype(leaf[1]), tree, is_leaf=is_leaf)
        path = pathlib.Path(folder) / "x"
        epi.save(path, tree, config)
        found = epi.load(path, jax.tree.map(jnp.zeros_like, tree))
        assert jax.tree.structure(found) == jax.tree.structure(tree)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and np.asarray(a).tobytes() == np.asarray(b).tobytes()
        assert epi.read_header(path).config == json.loads(json.dumps(config))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@given(num_classes=st.integers(1, 4), index_dim=st.integers(1, 3))
@settings(max_examples=4)
def test_an_enn_of_any_type_and_number_of_classes_is_loaded_as_it_was(dtype, num_classes, index_dim):
    with jax.enable_x64(dtype == "float64"), tempfile.TemporaryDirectory() as folder:

        def build(config):
            # In single precision first: `attach` does not promote under strict rules.
            with jax.enable_x64(False):
                keys = jax.random.split(jax.random.key(config["seed"]), 2)
                base = epi.networks.MLP(2, config["num_classes"], (3,), key=keys[0])
                enn = epi.attach(base, example=jnp.zeros(2), index_dim=config["index_dim"], key=keys[1])
            return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, enn)

        config = {"num_classes": num_classes, "index_dim": index_dim, "seed": 1}
        enn = build(config)
        epi.save(pathlib.Path(folder) / "x", enn, config)
        found = epi.load(pathlib.Path(folder) / "x", lambda config: build({**config, "seed": 2}))
        assert eqx.tree_equal(found, enn)


@given(hnp.arrays(np.uint8, st.tuples(*[st.integers(1, 4)] * 3)), st.integers(0, 99))
def test_normalization_is_its_formula(pixels, seed):
    rng = np.random.Generator(np.random.Philox(key=seed))
    mean, std = rng.uniform(0, 1, len(pixels)), rng.uniform(0.01, 1, len(pixels))
    expected = (pixels / 255 - mean[:, None, None]) / std[:, None, None]
    found = Normalization(tuple(mean.tolist()), tuple(std.tolist()))(pixels)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-5)


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0)))
def test_idx_files_hold_any_array_of_bytes(array):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x"
        sizes = struct.pack(f">{array.ndim}I", *array.shape)
        path.write_bytes(b"\0\0\x08" + bytes([array.ndim]) + sizes + array.tobytes())
        found = read_idx(path)
        assert found.shape == array.shape and np.array_equal(found, array)


@given(
    st.dictionaries(
        st.text(max_size=5).filter(lambda name: all(ord(c) < 128 for c in name)),
        hnp.arrays(st.sampled_from([np.uint8, np.int32, np.int64, np.float32, np.float64]), SHAPES)
        | st.integers(-(2**40), 2**40)
        | st.lists(st.integers(-5, 300), max_size=4)
        | st.binary(max_size=5),
        max_size=4,
    ),
    st.integers(2, 4),
)
def test_pickled_arrays_are_read_as_they_were_written(content, protocol):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x"
        path.write_bytes(pickle.dumps(content, protocol=protocol))
        found = read_pickled_arrays(path)
    assert list(found) == list(content)
    for name, value in content.items():
        if isinstance(value, np.ndarray):
            assert found[name].dtype == value.dtype and found[name].shape == value.shape
            assert found[name].tobytes() == value.tobytes()
        else:
            assert found[name] == value


@given(
    st.sampled_from(["RGB", "L", "1", "P", "RGBA", "LA"]),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.integers(0, 99),
)
def test_lossless_images_are_decoded_as_their_colors_on_white(mode, size, seed):
    import io

    from PIL import Image

    rng = np.random.Generator(np.random.Philox(key=seed))
    image = Image.fromarray(rng.integers(0, 256, (*size, 4), dtype=np.uint8)).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    rgba = np.asarray(image.convert("RGBA")).astype(float)
    alpha = rgba[:, :, 3:] / 255
    expected = rgba[:, :, :3] * alpha + 255 * (1 - alpha)
    found = Decode()(buffer.getvalue(), rng)
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found.transpose(1, 2, 0), expected, atol=1)
