"""PyTorch files (.pth, .pt) read as data, without PyTorch: the zip format and the older one of pickles in a row."""

import io
import itertools
import os
import pathlib
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from .._files import TORCH_STARTS, StrPath, atomic_file, require_file
from .._pickled import Name, read_pickle

# Where training scripts put the state dict, next to an optimizer's state and other things.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
_PREFIX = "module."
_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_DTYPES: dict[str, Any] = {
    "torch DoubleStorage": np.float64,
    "torch FloatStorage": np.float32,
    "torch HalfStorage": np.float16,
    "torch BFloat16Storage": jnp.bfloat16,
    "torch LongStorage": np.int64,
    "torch IntStorage": np.int32,
    "torch ShortStorage": np.int16,
    "torch CharStorage": np.int8,
    "torch ByteStorage": np.uint8,
    "torch BoolStorage": np.bool_,
}


class _Storage(NamedTuple):
    """A contiguous block of numbers, stored elsewhere in the file."""

    key: str
    dtype: Any
    size: int


class _Tensor(NamedTuple):
    """A strided view of a storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, content: np.ndarray) -> np.ndarray:
        """Return the numbers, out of those of the storage."""
        content = content[self.offset :]
        strides = tuple(stride * content.itemsize for stride in self.strides)
        view = np.lib.stride_tricks.as_strided(content, self.shape, strides, writeable=False)
        return np.array(view, order="C")


def _storage(identifier: Any) -> _Storage:
    """Return the storage of an identifier: ("storage", type, key, device, size), of the older format with a view."""
    match identifier:
        case ("storage", Name(kind, _), str() as key, str(), int() as size, *rest) if rest in ([], [None]):
            if kind in _DTYPES and size >= 0:
                return _Storage(key, _DTYPES[kind], size)
    raise ValueError("a storage of another kind")


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    """Return a view that lies within its storage and holds no number of it twice."""
    if not isinstance(storage, _Storage) or not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise ValueError("a tensor without a storage")
    numbers = (offset, *shape, *strides)
    if not all(type(n) is int and n >= 0 for n in numbers) or len(shape) != len(strides) or len(shape) > 32:
        raise ValueError("a tensor of impossible shape")
    count = 1
    for size in shape:
        count *= size
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if count > storage.size or (count and last >= storage.size) or offset > storage.size:
        raise ValueError("a tensor beyond its storage")
    return _Tensor(storage, offset, shape, strides)


def _rebuild_parameter(tensor: Any, *_: Any) -> _Tensor:
    """Return the tensor of a parameter."""
    if not isinstance(tensor, _Tensor):
        raise ValueError("a parameter without a tensor")
    return tensor


def _ordered_dict(*pairs: Any) -> dict[Any, Any]:
    """Return an empty dictionary; torch fills it afterwards."""
    if pairs:
        raise ValueError("a dictionary of other things")
    return {}


_NAMES: dict[str, Callable[..., Any] | None] = {
    "collections OrderedDict": _ordered_dict,
    "torch._utils _rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils _rebuild_parameter": _rebuild_parameter,
    **dict.fromkeys(_DTYPES),
}


def _read_zip(stream: io.BytesIO) -> tuple[Any, Callable[[_Storage], bytes]]:
    """Return the unpickled content of a file of the zip format, and a function from a storage to its bytes."""
    archive = zipfile.ZipFile(stream)
    entries = {info.filename: info for info in archive.infolist()}
    descriptions = [name for name in entries if name.endswith("/data.pkl")]
    if len(descriptions) != 1:
        raise ValueError("no description of tensors")
    folder = descriptions[0].removesuffix("data.pkl")

    def member(name: str) -> bytes:
        if name not in entries or entries[name].compress_type != zipfile.ZIP_STORED:
            raise ValueError("a storage that is missing or compressed")
        return archive.read(entries[name])

    if f"{folder}byteorder" in entries and member(f"{folder}byteorder") != b"little":
        raise ValueError("numbers in another byte order")
    content = read_pickle(io.BytesIO(member(descriptions[0])), _NAMES, persistent=_storage)
    return content, lambda storage: member(f"{folder}data/{storage.key}")


def _read_legacy(stream: io.BytesIO) -> tuple[Any, Callable[[_Storage], bytes]]:
    """Return the unpickled content of a file of the older format, and a function from a storage to its bytes."""
    head = [read_pickle(stream, {}) for _ in range(3)]
    if head[:2] != [_MAGIC, _PROTOCOL] or not isinstance(head[2], dict) or head[2].get("little_endian") is not True:
        raise ValueError("another format")
    found: dict[str, _Storage] = {}

    def storage(identifier: Any) -> _Storage:
        new = _storage(identifier)
        if found.setdefault(new.key, new) != new:
            raise ValueError("two storages of one name")
        return new

    content = read_pickle(stream, _NAMES, persistent=storage)
    keys = read_pickle(stream, {})
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or set(keys) != set(found):
        raise ValueError("another list of storages than its tensors have")
    blocks: dict[str, bytes] = {}
    for key in keys:
        count = int.from_bytes(stream.read(8), "little", signed=True)
        if count != found[key].size or key in blocks:
            raise ValueError("a storage of another size")
        blocks[key] = stream.read(count * np.dtype(found[key].dtype).itemsize)
    return content, lambda storage: blocks[storage.key]


def _state_dict(content: Any) -> dict[str, _Tensor]:
    """Return the named tensors of the unpickled content of a file."""
    for name in itertools.chain.from_iterable(itertools.repeat(_WRAPPERS, 4)):
        if isinstance(content, Mapping) and isinstance(content.get(name), dict):
            content = content[name]
    if not isinstance(content, dict) or not content:
        raise ValueError("no state dict")
    if not all(isinstance(name, str) and isinstance(value, _Tensor) for name, value in content.items()):
        raise ValueError("a state dict with other things than named tensors")
    return {name.removeprefix(_PREFIX): value for name, value in content.items()}


def read_torch_file(path: StrPath) -> dict[str, np.ndarray]:
    """Return the named tensors of a PyTorch file with a state dict, alone or in a checkpoint of a training script.

    The file is read as data and cannot run code. Tensors have the element types of the file; the prefix `module.` of
    wrapped networks is removed.

    Args:
        path: a `.pth` or `.pt` file, of any version of PyTorch.
    """
    content = require_file(path).read_bytes()
    stream = io.BytesIO(content)
    try:
        described, read = _read_zip(stream) if content.startswith(TORCH_STARTS[0]) else _read_legacy(stream)
        tensors = _state_dict(described)
        # Tied tensors share a storage, so there may be more numbers than bytes in the file, but not without limit.
        sizes = [int(np.prod(t.shape, dtype=object)) * np.dtype(t.storage.dtype).itemsize for t in tensors.values()]
        if sum(sizes) > 4 * len(content):
            raise ValueError("more numbers than the file can have")
        arrays = {}
        for name, tensor in tensors.items():
            block = read(tensor.storage)
            numbers = np.frombuffer(block, np.dtype(tensor.storage.dtype))
            if len(numbers) < tensor.storage.size:
                raise ValueError("a storage that is truncated")
            arrays[name] = tensor.of(numbers)
    except (ValueError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{os.fspath(path)!r} must be a PyTorch file with a state dict; it holds {error}, and was not loaded."
        ) from None
    return arrays


def convert(source: StrPath, target: StrPath) -> dict[str, np.ndarray]:
    """Write the state dict of a PyTorch file to a safetensors file, and return it; see `read_torch_file`."""
    tensors = read_torch_file(source)
    with atomic_file(pathlib.Path(target)) as temporary:
        safetensors.numpy.save_file(tensors, temporary)
    return tensors
