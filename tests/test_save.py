"""Files: round trips, headers, and errors that name what is wrong."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import safetensors.numpy

import epinet_eqx as epi
from epinet_eqx.epinet import mlp_prior
from epinet_eqx.networks import MLP


def build(config):
    key = jr.key(config.get("seed", 0))
    base = MLP(3, 4, (8,), key=jr.fold_in(key, 0))
    prior = mlp_prior(3, config["index_dim"], 4, key=jr.fold_in(key, 1))
    return epi.attach(base, out_size=4, index_dim=config["index_dim"], priors=(prior,), key=jr.fold_in(key, 2))


@pytest.fixture
def saved(tmp_path):
    enn = build({"index_dim": 5, "seed": 7})
    path = tmp_path / "enn.safetensors"
    epi.save(path, enn, {"index_dim": 5})
    return enn, path


def test_round_trip_holds_every_array_priors_included(saved):
    enn, path = saved
    # The building function draws another prior (seed 0): what is loaded must be the file's (pitfall 4).
    assert eqx.tree_equal(epi.load(path, build), enn)
    assert eqx.tree_equal(epi.load(path, build({"index_dim": 5, "seed": 3})), enn)


def test_header_is_readable(saved):
    _, path = saved
    assert epi.read_header(path) == (epi.__version__, {"index_dim": 5})


def test_arrays_are_keyed_by_path(saved):
    enn, path = saved
    arrays = safetensors.numpy.load_file(path)
    assert jnp.array_equal(arrays["learnable.layers.0.weight"], enn.learnable.layers[0].weight)
    assert jnp.array_equal(arrays["priors.0.scale.content"], enn.priors[0].scale.content)


def test_keys_and_small_types_round_trip(tmp_path, getkey):
    tree = {"key": getkey(), "half": jnp.ones(3, jnp.bfloat16), "count": jnp.int32(3), "name": "text"}
    epi.save(tmp_path / "tree.safetensors", tree)
    assert eqx.tree_equal(epi.load(tmp_path / "tree.safetensors", tree), tree)


def test_missing_extra_and_misshapen_arrays_are_named(saved):
    enn, path = saved
    with pytest.raises(ValueError, match=r"extra priors.1.enn.*extra priors.1.scale.content"):
        epi.load(path, eqx.tree_at(lambda enn: enn.priors, enn, enn.priors[:1]))
    with pytest.raises(ValueError, match=r"missing priors.2.enn"):
        epi.load(path, eqx.tree_at(lambda enn: enn.priors, enn, (*enn.priors, enn.priors[0])))
    with pytest.raises(ValueError, match=r"learnable.layers.0.weight has shape \(50, 13\) instead of \(50, 14\)"):
        epi.load(path, build({"index_dim": 6}))
    halved = eqx.tree_at(lambda enn: enn.priors[0].scale.content, enn, jnp.bfloat16(1))
    with pytest.raises(ValueError, match=r"priors.0.scale.content is float32, not bfloat16"):
        epi.load(path, halved)


@pytest.mark.parametrize("kept", [0, 4, 100, -5])
def test_a_truncated_file_is_an_error(saved, kept):
    _, path = saved
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="`path` must be a whole safetensors file; .* is damaged"):
        epi.load(path, build)


def test_other_files_are_refused(tmp_path):
    other = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"a": jnp.ones(2).__array__()}, other)
    with pytest.raises(ValueError, match="`path` must be a file written by `save`"):
        epi.load(other, build)
    with pytest.raises(FileNotFoundError, match="`path` must name an existing file"):
        epi.load(tmp_path / "absent.safetensors", build)
    with pytest.raises(FileNotFoundError, match="`path` must lie in an existing folder"):
        epi.save(tmp_path / "absent" / "enn.safetensors", build({"index_dim": 2}))
    with pytest.raises(ValueError, match="`config` must hold JSON values only"):
        epi.save(other, build({"index_dim": 2}), {"array": jnp.ones(2)})


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(saved, monkeypatch):
    enn, path = saved
    before = path.read_bytes()

    def disk_full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.flax.save_file", disk_full)
    with pytest.raises(OSError, match="No space left"):
        epi.save(path, enn)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def flipped(content, bit):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("part", ["header", "arrays"])
def test_a_flipped_bit_is_an_error(saved, part):
    enn, path = saved
    content = path.read_bytes()
    start = 8 * (8 + int.from_bytes(content[:8], "little"))
    low, high = (0, start) if part == "header" else (start, 8 * len(content))
    words = "its arrays do not have the checksum" if part == "arrays" else "damaged|is another safetensors file"
    rng = np.random.Generator(np.random.Philox(key=1))
    for bit in [low, high - 1, *rng.integers(low, high, 60)]:
        path.write_bytes(flipped(content, int(bit)))
        with pytest.raises(ValueError, match=f"`path` must be .*({words})"):
            epi.load(path, enn)
    path.write_bytes(content)
    assert eqx.tree_equal(epi.load(path, enn), enn)


def test_every_flip_of_a_short_file_is_an_error(tmp_path):
    path, tree = tmp_path / "tree.safetensors", {"weight": jnp.arange(3.0)}
    epi.save(path, tree, {"width": 3})
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        path.write_bytes(flipped(content, bit))
        with pytest.raises(ValueError, match="`path` must be"):
            epi.load(path, tree)


def test_a_changed_configuration_is_an_error_before_any_array_is_read(saved):
    _, path = saved
    content = path.read_bytes()
    path.write_bytes(content.replace(b'\\"index_dim\\": 5', b'\\"index_dim\\": 6'))
    assert path.read_bytes() != content
    with pytest.raises(ValueError, match="its header does not have the checksum that it states"):
        epi.read_header(path)


def test_files_without_checksums_are_read(saved):
    enn, path = saved
    arrays = safetensors.numpy.load_file(path)
    header = {"format": "epinet_eqx", "version": "0.0.1", "config": '{"index_dim": 5}'}
    safetensors.numpy.save_file(arrays, path, header)
    assert eqx.tree_equal(epi.load(path, build), enn)
    assert epi.read_header(path) == ("0.0.1", {"index_dim": 5})
    for broken in ({"config": "{"}, {"config": "[1]"}, {"config": "[" * 100_000}):
        safetensors.numpy.save_file(arrays, path, header | broken)
        with pytest.raises(ValueError, match="`path` must be a file as `save` wrote it; .* is damaged: its"):
            epi.read_header(path)
    for missing in ("version", "config"):
        safetensors.numpy.save_file(arrays, path, {name: header[name] for name in header if name != missing})
        with pytest.raises(ValueError, match="is damaged: its"):
            epi.read_header(path)


def test_names_that_look_like_checksums_are_names(tmp_path):
    tree = {"crc32_of_header": jnp.ones(2), "sums_of_data": jnp.zeros(0), "x": jnp.ones(5000)}
    config = {"crc32_of_header": "00000000", "text": '"sums_of_data":"0000000000000000"'}
    epi.save(tmp_path / "a", tree, config)
    assert eqx.tree_equal(epi.load(tmp_path / "a", tree), tree)
    assert epi.read_header(tmp_path / "a").config == config


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 8192])
def test_the_checksum_sees_every_byte(tmp_path, size):
    # Whole blocks, a rest of a block, and none.
    path, tree = tmp_path / "x", {"x": jnp.asarray(np.resize(np.arange(256, dtype=np.uint8), size))}
    epi.save(path, tree)
    whole = path.read_bytes()
    for at in {1, size // 2 + 1, size} if size else ():
        path.write_bytes(flipped(whole, 8 * (len(whole) - at) + 3))
        with pytest.raises(ValueError, match="its arrays do not have the checksum"):
            epi.load(path, tree)
    path.write_bytes(whole)
    assert eqx.tree_equal(epi.load(path, tree), tree)


@pytest.mark.parametrize(
    ("number", "header", "data"),
    [(2, "header_checksum", "data_checksum"), (3, "checksum_of_header", "checksum_of_arrays")],
)
def test_files_with_former_checksums_are_read(tmp_path, number, header, data):
    # They were computed otherwise, and are not verified.
    header = {header: "01234567", data: "0123456789abcdef"}
    header |= {"format": f"epinet_eqx {number}", "version": "0.1.0", "config": "{}"}
    safetensors.numpy.save_file({"x": np.ones(3, np.float32)}, tmp_path / "x", header)
    assert epi.load(tmp_path / "x", {"x": jnp.zeros(3)})["x"].tolist() == [1, 1, 1]


def test_a_damaged_format_does_not_switch_the_checksums_off(saved):
    enn, path = saved
    content = path.read_bytes()
    for former in (b"epinet_eqx 3", b"epinet_eqx 2"):
        path.write_bytes(content.replace(b"epinet_eqx 4", former))
        with pytest.raises(ValueError, match="its header does not have the checksum that it states"):
            epi.load(path, enn)


def test_nothing_is_saved_in_a_smaller_type_or_under_the_name_of_another(tmp_path):
    with pytest.raises(ValueError, match="`model` must hold arrays of types that JAX has.*x is float64"):
        epi.save(tmp_path / "x", {"x": np.ones(3)})
    with pytest.raises(ValueError, match="x is int64"):
        epi.save(tmp_path / "x", {"x": np.array([2**40])})
    for tree in ({"a.b": jnp.ones(1), "a": {"b": jnp.zeros(1)}}, {"a": [jnp.ones(1)], "a.0": jnp.zeros(1)}):
        with pytest.raises(ValueError, match="one array per path"):
            epi.save(tmp_path / "x", tree)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int32", "float16", "bfloat16", "float32", "float64"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (70, 61)])
def test_every_type_and_shape_round_trips(tmp_path, x64, dtype, shape):
    with jax.enable_x64(x64):
        if dtype == "float64" and not x64:
            pytest.skip("JAX has no such type here")
        values = np.random.Generator(np.random.Philox(key=1)).normal(size=shape) * 100
        tree = {"x": jnp.asarray(values).astype(dtype)}
        epi.save(tmp_path / "x", tree)
        found = epi.load(tmp_path / "x", tree)["x"]
        assert found.dtype == dtype and found.shape == shape
        assert np.asarray(found).tobytes() == np.asarray(tree["x"]).tobytes()
