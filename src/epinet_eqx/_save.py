"""Models as files: one safetensors file that holds every array, a readable header and checksums of both."""

import hashlib
import json
import os
import pathlib
import re
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import safetensors.flax
from jaxtyping import Array

from ._files import atomic_file, open_safetensors

_T = TypeVar("_T")
# Files of the first format have no checksums and are read as they are.
_FORMAT = "epinet_eqx 2"
_UNCHECKED_FORMAT = "epinet_eqx"

# Written as zeros at first: a header cannot hold a checksum of itself. A quote within a JSON string is escaped, so
# neither the configuration nor the name of an array can look like these fields.
_HEADER_FIELD = re.compile(rb'"header_checksum":"([0-9a-f]{8})"')
_DATA_FIELD = re.compile(rb'"data_checksum":"([0-9a-f]{16})"')
_NO_CHECKSUMS = {"header_checksum": "0" * 8, "data_checksum": "0" * 16}
_BLOCK_WORDS = 512


class Header(NamedTuple):
    """What a file says of itself: the version of the library that wrote it, and the configuration given to `save`."""

    version: str
    config: dict[str, Any]


def _entry_name(entry: Any) -> str:
    """Return one step of a path through a tree as text."""
    for attribute in ("name", "idx", "key"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _is_array_like(leaf: Any) -> bool:
    """Return whether a leaf is saved: an array, or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, (jax.ShapeDtypeStruct, np.ndarray))


def _is_key(leaf: Any) -> bool:
    """Return whether a leaf is a typed random key, which is saved as its bits."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _named_arrays(tree: Any) -> dict[str, Any]:
    """Return the array leaves of `tree` by path, such as `learnable.layers.0.weight`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {".".join(map(_entry_name, path)): leaf for path, leaf in leaves if _is_array_like(leaf)}


def _read_head(path: str | os.PathLike[str]) -> bytes:
    """Return the length and the JSON text that a safetensors file begins with."""
    with open(path, "rb") as file:
        length = file.read(8)
        return length + file.read(int.from_bytes(length, "little"))


def _header_checksum(head: bytes) -> bytes:
    """Return the checksum of the header with zeros in its own place."""
    return b"%08x" % zlib.crc32(_HEADER_FIELD.sub(b'"header_checksum":"00000000"', head))


def _data_checksum(path: str | os.PathLike[str], start: int) -> bytes:
    """Return the checksum of all bytes from `start` on: a hash of the sums of blocks of 4 KiB.

    Adding 64-bit words is several times as fast as CRC-32 or a hash of all bytes, and a change of one word always
    changes the sum of its block. It finds damage and is no protection against forgery.
    """
    size = os.path.getsize(path) - start
    digest = hashlib.blake2b(digest_size=8)
    if size > 0:
        data = np.memmap(path, np.uint8, "r", offset=start)
        whole = size - size % (8 * _BLOCK_WORDS)
        digest.update(data[:whole].view("<u8").reshape(-1, _BLOCK_WORDS).sum(axis=1, dtype=np.uint64).tobytes())
        digest.update(data[whole:].tobytes())
    digest.update(size.to_bytes(8, "little"))
    return digest.hexdigest().encode()


def _write_checksums(path: pathlib.Path) -> None:
    """Fill in the two checksums of a file that was written with zeros for them."""
    head = _read_head(path)
    filled = _DATA_FIELD.sub(b'"data_checksum":"%s"' % _data_checksum(path, len(head)), head)
    filled = _HEADER_FIELD.sub(b'"header_checksum":"%s"' % _header_checksum(filled), filled)
    with open(path, "rb+") as file:
        file.write(filled)


def save(path: str | os.PathLike[str], model: Any, config: Mapping[str, Any] | None = None) -> None:
    """Write every array of `model`, frozen ones included, to one safetensors file.

    The file appears whole or not at all: an interrupted write leaves what was there before. Checksums of the header
    and of the arrays are written along, and `load` compares them.

    Args:
        path: the file to write.
        model: an ENN, or any tree of modules.
        config: what is needed to build the model again, as JSON values; `load` hands it to a building function.
    """
    from . import __version__

    try:
        text = json.dumps(dict(config or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`config` must hold JSON values only; {error}.") from None
    arrays = {
        name: jnp.asarray(jr.key_data(leaf) if _is_key(leaf) else leaf) for name, leaf in _named_arrays(model).items()
    }
    path = pathlib.Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"`path` must lie in an existing folder; got {os.fspath(path)!r}.")
    metadata = {"format": _FORMAT, "version": __version__, "config": text, **_NO_CHECKSUMS}
    with atomic_file(path) as temporary:
        safetensors.flax.save_file(arrays, temporary, metadata)
        _write_checksums(temporary)


def _damaged(path: str | os.PathLike[str], why: str) -> ValueError:
    """Return the error for a file that is not what `save` wrote."""
    return ValueError(f"`path` must be a file as `save` wrote it; {os.fspath(path)!r} is damaged: {why}.")


def _read_checked(path: str | os.PathLike[str]) -> tuple[Header, bytes | None, int]:
    """Return the header, the checksum that the arrays must have if there is one, and where the arrays begin."""
    with open_safetensors(path) as file:
        metadata = file.metadata() or {}
    head = _read_head(path)
    checksum = None
    if metadata.get("format") == _FORMAT:
        of_header, of_data = _HEADER_FIELD.search(head), _DATA_FIELD.search(head)
        if of_header is None or of_data is None:
            raise _damaged(path, "its header lacks a checksum")
        if of_header[1] != _header_checksum(head):
            raise _damaged(path, "its header does not have the checksum that it states")
        checksum = of_data[1]
    elif metadata.get("format") != _UNCHECKED_FORMAT:
        raise ValueError(f"`path` must be a file written by `save`; {os.fspath(path)!r} is another safetensors file.")
    try:
        config = json.loads(metadata.get("config", ""))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its configuration is not JSON, {error}") from None
    if not isinstance(config, dict) or "version" not in metadata:
        raise _damaged(path, "its header has no version, or a configuration that is no dictionary")
    return Header(metadata["version"], config), checksum, len(head)


def read_header(path: str | os.PathLike[str]) -> Header:
    """Return the version and the configuration that a file was saved with, without reading its arrays."""
    return _read_checked(path)[0]


def _mismatches(expected: dict[str, Any], file: Any) -> list[str]:
    """Return a phrase for each array that is missing, extra, or of another shape or type."""
    found = set(file.keys())
    phrases = [f"missing {name}" for name in expected if name not in found]
    phrases += [f"extra {name}" for name in sorted(found - expected.keys())]
    for name in sorted(found & expected.keys()):
        leaf = expected[name]
        want = jax.eval_shape(jr.key_data, leaf) if _is_key(leaf) else leaf
        shape = tuple(file.get_slice(name).get_shape())
        if shape != want.shape:
            phrases.append(f"{name} has shape {shape} instead of {want.shape}")
    return phrases


def load(path: str | os.PathLike[str], like: _T | Callable[[dict[str, Any]], _T]) -> _T:
    """Read a model that `save` wrote.

    Nothing in the file is run: it holds arrays and JSON only. A file that was changed by as little as one bit is
    refused. Files that were written before there were checksums are read without that check; load and save one to
    give it checksums.

    Args:
        path: the file to read.
        like: a model of the same structure (its values are not used), or a function from the saved configuration to
            one, which is traced for its shapes only.

    Returns:
        A model with the structure of `like` and the arrays of the file.
    """
    header, checksum, start = _read_checked(path)
    if isinstance(like, eqx.Module) or not callable(like):
        template = like
    else:
        template = eqx.filter_eval_shape(like, header.config)
    expected = _named_arrays(template)
    with open_safetensors(path) as file, ThreadPoolExecutor(1) as pool:
        phrases = _mismatches(expected, file)
        if phrases:
            raise ValueError(
                f"`like` must have the arrays of {os.fspath(path)!r} (version {header.version}); "
                f"the file differs: {', '.join(phrases)}."
            )
        # In another thread, since numpy adds without holding the interpreter's lock.
        found = pool.submit(_data_checksum, path, start) if checksum is not None else None
        arrays = {name: file.get_tensor(name) for name in expected}
        if found is not None and found.result() != checksum:
            raise _damaged(path, "its arrays do not have the checksum that its header states")
    for name, leaf in expected.items():
        if _is_key(leaf):
            arrays[name] = jr.wrap_key_data(arrays[name], impl=_key_impl(leaf))
        elif arrays[name].dtype != leaf.dtype:
            raise ValueError(
                f"`like` must have the types of the file; {name} is {arrays[name].dtype}, not {leaf.dtype}."
            )

    def restore(path: Any, leaf: Any) -> Any:
        return arrays[".".join(map(_entry_name, path))] if _is_array_like(leaf) else leaf

    return jax.tree_util.tree_map_with_path(restore, template)


def _key_impl(leaf: Array) -> str:
    """Return the name of the generator of a typed key, or of the shape of one."""
    return leaf.dtype._impl.name  # pyright: ignore[reportAttributeAccessIssue]
