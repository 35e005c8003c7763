"""PyTorch files read as data, in both formats; the files are written here without PyTorch."""

import collections
import io
import pathlib
import pickle
import struct
import subprocess
import sys
import types
import zipfile

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from epinet_eqx import load
from epinet_eqx.weights import convert, read_torch_file
from epinet_eqx.weights.__main__ import main

STORAGES = {
    "FloatStorage": np.float32,
    "DoubleStorage": np.float64,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": np.int64,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


class Storage:
    """The numbers of one or more tensors."""

    def __init__(self, key, values, kind):
        self.key, self.values, self.kind = key, values, kind


class Tensor:
    """A view of a storage, pickled as PyTorch does."""

    def __init__(self, storage, offset, shape, strides):
        self.state = storage, offset, shape, strides, False, collections.OrderedDict()

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.state


def make_torch(monkeypatch):
    """Install and return stand-ins for the modules whose names are in the files."""
    module, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2():
        raise AssertionError

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    for name in STORAGES:
        setattr(module, name, type(name, (), {"__module__": "torch"}))
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    return module


@pytest.fixture
def torch(monkeypatch):
    """Stand-ins for the modules of PyTorch."""
    return make_torch(monkeypatch)


def tensor(key, array):
    """A whole array as a tensor with a storage of its own."""
    kind = next(name for name, dtype in STORAGES.items() if np.dtype(dtype) == array.dtype)
    strides = tuple(stride // array.itemsize for stride in np.ascontiguousarray(array).strides)
    return Tensor(Storage(key, array, kind), 0, array.shape, strides[: array.ndim])


def dump(torch, content, legacy):
    """Return the pickle and the storages that it refers to."""
    storages = {}

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, Storage):
                return None
            storages[value.key] = value
            view = (None,) if legacy else ()
            return ("storage", getattr(torch, value.kind), value.key, "cpu", value.values.size, *view)

    buffer = io.BytesIO()
    Pickler(buffer, protocol=2).dump(content)
    return buffer.getvalue(), storages


def write(path, torch, content, legacy=False, **options):
    """Write a file in one of the formats."""
    pickled, storages = dump(torch, content, legacy)
    if legacy:
        info = {"protocol_version": 1001, "little_endian": options.get("little_endian", True), "type_sizes": {"int": 4}}
        head = [pickle.dumps(value, protocol=2) for value in (0x1950A86A20F9469CFC6C, 1001, info)]
        keys = pickle.dumps(list(storages), protocol=2)
        blocks = [struct.pack("<q", s.values.size) + s.values.tobytes() for s in storages.values()]
        path.write_bytes(b"".join([*head, pickled, keys, *blocks]))
        return
    with zipfile.ZipFile(path, "w", options.get("compression", zipfile.ZIP_STORED)) as file:
        file.writestr("archive/data.pkl", pickled)
        file.writestr("archive/byteorder", options.get("byteorder", "little"))
        for key, storage in storages.items():
            file.writestr(f"archive/data/{key}", storage.values.tobytes())


def examples():
    """One array per element type, of several shapes."""
    rng = np.random.Generator(np.random.Philox(key=3))
    shapes = [(3, 2, 1, 4), (), (5,), (2, 3), (0, 3), (7,), (2, 2)]
    return {
        f"layer.{name}": np.asarray(rng.normal(size=shape) * 9).astype(dtype)
        for (name, dtype), shape in zip(STORAGES.items(), shapes, strict=True)
    }


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
def test_every_element_type_is_read(tmp_path, torch, legacy, wrapped):
    arrays = examples()
    content = collections.OrderedDict((name, tensor(str(k), value)) for k, (name, value) in enumerate(arrays.items()))
    # Modules attach such an attribute to their state dict.
    content._metadata = collections.OrderedDict({"": {"version": 1}})
    if wrapped:
        prefixed = {f"module.{name}": value for name, value in content.items()}
        content = {
            "epoch": 3,
            "state_dict": prefixed,
            "best": 0.5,
            "optimizer": {"state": {0: tensor("9", np.ones(2))}},
        }
    write(tmp_path / "x.pth", torch, content, legacy)
    found = read_torch_file(tmp_path / "x.pth")
    assert list(found) == list(arrays)
    for name, value in arrays.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape
        np.testing.assert_array_equal(found[name], value)
    assert main(["convert", str(tmp_path / "x.pth"), str(tmp_path / "x.safetensors")]) == 0
    again = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    assert all(again[name].tobytes() == value.tobytes() for name, value in arrays.items())


@pytest.mark.parametrize("legacy", [False, True])
def test_views_share_a_storage(tmp_path, torch, legacy):
    values = np.arange(12, dtype=np.float32)
    storage = Storage("0", values, "FloatStorage")
    content = {"whole": Tensor(storage, 0, (3, 4), (4, 1)), "turned": Tensor(storage, 0, (4, 3), (1, 4))}
    content["part"] = Tensor(storage, 5, (2, 2), (4, 2))
    write(tmp_path / "x.pth", torch, content, legacy)
    found = read_torch_file(tmp_path / "x.pth")
    np.testing.assert_array_equal(found["whole"], values.reshape(3, 4))
    np.testing.assert_array_equal(found["turned"], values.reshape(3, 4).T)
    np.testing.assert_array_equal(found["part"], [[5, 7], [9, 11]])


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    ("view", "words"),
    [
        ((0, (13,), (1,)), "beyond its storage"),
        ((12, (1,), (1,)), "beyond its storage"),
        ((0, (3, 4), (4, 2)), "beyond its storage"),
        # A view with stride 0 could have any size.
        ((0, (10**6, 10**6), (0, 0)), "beyond its storage"),
        ((-1, (2,), (1,)), "impossible shape"),
        ((0, (-2, -3), (1, 1)), "impossible shape"),
        ((0, (2, 2), (-1, 1)), "impossible shape"),
        ((0, (2, 2), (1,)), "impossible shape"),
        ((0, (2.0,), (1,)), "impossible shape"),
    ],
)
def test_views_outside_of_their_storage_are_refused(tmp_path, torch, legacy, view, words):
    storage = Storage("0", np.arange(12, dtype=np.float32), "FloatStorage")
    write(tmp_path / "x.pth", torch, {"x": Tensor(storage, *view)}, legacy)
    with pytest.raises(ValueError, match=f"x.pth' must be a PyTorch file with a state dict; it holds .*{words}"):
        read_torch_file(tmp_path / "x.pth")


class Malicious:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (pathlib.Path.touch, (self.path,))


@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_in_a_file_runs(tmp_path, torch, legacy, capsys):
    write(tmp_path / "x.pth", torch, {"state_dict": Malicious(tmp_path / "ran")}, legacy)
    assert main(["convert", str(tmp_path / "x.pth"), str(tmp_path / "x.safetensors")]) == 1
    assert "it holds the name" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists() and not (tmp_path / "x.safetensors").exists()


def test_other_files_are_refused(tmp_path, torch):
    path = tmp_path / "x.pth"
    x = tensor("0", np.ones(1000, np.float32))
    for content in ([x], {}, {"a": 1}, {"a": x, "b": [x]}, {1: x}, 3):
        for legacy in (False, True):
            write(path, torch, content, legacy)
            with pytest.raises(ValueError, match="it holds (no state dict|a state dict with other things)"):
                read_torch_file(path)
    write(path, torch, {"x": x}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="missing or compressed"):
        read_torch_file(path)
    for options in ({"byteorder": "big"}, {"legacy": True, "little_endian": False}):
        write(path, torch, {"x": x}, **options)
        with pytest.raises(ValueError, match="another byte order|another format"):
            read_torch_file(path)
    for legacy in (False, True):
        write(path, torch, {"x": x}, legacy)
        whole = path.read_bytes()
        for stop in (0, 3, 20, 200, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:stop])
            with pytest.raises(ValueError, match="must be a PyTorch file with a state dict"):
                read_torch_file(path)
    with pytest.raises(FileNotFoundError, match="absent.pth' is missing"):
        convert(tmp_path / "absent.pth", tmp_path / "y")


@pytest.mark.parametrize("legacy", [False, True])
def test_a_torch_file_in_place_of_a_safetensors_file_names_the_converter(tmp_path, torch, legacy):
    write(tmp_path / "x.pth", torch, {"x": tensor("0", np.ones(3))}, legacy)
    with pytest.raises(ValueError, match="x.pth' is a PyTorch file: convert it with `python -m epinet_eqx"):
        load(tmp_path / "x.pth", {"x": np.ones(3)})


def test_real_torch_writes_what_is_read(tmp_path):
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    for zipped in (True, False):
        torch.save(network.state_dict(), tmp_path / "x.pth", _use_new_zipfile_serialization=zipped)
        found = read_torch_file(tmp_path / "x.pth")
        assert all(np.array_equal(found[name], value) for name, value in network.state_dict().items())


def test_the_command_runs(tmp_path):
    command = [sys.executable, "-m", "epinet_eqx.weights", "convert", str(tmp_path / "absent"), "x"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 1 and "absent' is missing" in found.stderr
