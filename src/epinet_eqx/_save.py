"""Saved models: one safetensors file with every array, a readable header, and checksums of both."""

import hashlib
import json
import os
import pathlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import safetensors.flax
from jaxtyping import Array

from ._files import StrPath, atomic_file, open_safetensors

_T = TypeVar("_T")
_FORMAT = "epinet_eqx 4"
# Without checksums, or with those of another algorithm: read unchecked.
_FORMER_FORMATS = ("epinet_eqx", "epinet_eqx 2", "epinet_eqx 3")
# No former format has such entries, so damage to the name of the format is detected as well.
_OF_HEADER, _OF_DATA = "crc32_of_header", "sums_of_data"
# Placeholders of the entries while the checksums are computed.
_BLANK_HEADER, _BLANK_DATA = "0" * 8, "0" * 16
_BLOCK_WORDS = 2048


class Header(NamedTuple):
    """The version of the library that wrote a file, and the configuration given to `save`."""

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
    named = [(".".join(map(_entry_name, path)), leaf) for path, leaf in leaves if _is_array_like(leaf)]
    arrays = dict(named)
    if len(arrays) < len(named):
        raise ValueError("The model must have one array per path; keys such as 1 and '1' name two arrays alike.")
    return arrays


def _saved_form(name: str, leaf: Any) -> Array:
    """Return a leaf as an array to store: keys as their bits; types that JAX would narrow are refused."""
    array = jnp.asarray(jr.key_data(leaf) if _is_key(leaf) else leaf)
    if not _is_key(leaf) and array.dtype != leaf.dtype:
        raise ValueError(
            f"`model` must hold arrays of types that JAX has, unless `jax_enable_x64` is set; {name} is {leaf.dtype}."
        )
    return array


def _raw_header(path: StrPath) -> bytes:
    """Return the raw header of a safetensors file: its length in 8 bytes, then JSON."""
    with open(path, "rb") as file:
        length = file.read(8)
        return length + file.read(int.from_bytes(length, "little"))


def _entry(name: str, checksum: str) -> bytes:
    """Encode an entry of the metadata. Inside other entries its quotes would be escaped."""
    return f'"{name}":"{checksum}"'.encode()


def _header_checksum(header: bytes, stated: str) -> str:
    """Return the CRC-32 of a header, with zeros in place of the checksum that it states."""
    return f"{zlib.crc32(header.replace(_entry(_OF_HEADER, stated), _entry(_OF_HEADER, _BLANK_HEADER))):08x}"


def _data_checksum(path: StrPath, start: int) -> str:
    """Return the checksum of what follows the header: a hash of the sums of blocks of 16 KiB.

    The file is mapped and added up as 64-bit words, at ten times the speed of CRC-32 and without a copy: arrays are
    read much more slowly (`nox -s bench -- load`). A change of one word always changes the sum of its block. The sums
    detect accidental damage, not forgery.
    """
    content = np.memmap(path, mode="r")[start:]
    whole = content.size - content.size % (8 * _BLOCK_WORDS)
    digest = hashlib.blake2b(content.size.to_bytes(8, "little"), digest_size=8)
    sums = content[:whole].view("<u8").reshape(-1, _BLOCK_WORDS).sum(axis=1, dtype=np.uint64)
    digest.update(sums.astype("<u8").tobytes() + content[whole:].tobytes())
    return digest.hexdigest()


def _write_checksums(path: pathlib.Path) -> None:
    """Replace the blank checksums in the header of a file."""
    header = _raw_header(path)
    checksum = _data_checksum(path, len(header))
    header = header.replace(_entry(_OF_DATA, _BLANK_DATA), _entry(_OF_DATA, checksum))
    checksum = _header_checksum(header, _BLANK_HEADER)
    with open(path, "r+b") as file:
        file.write(header.replace(_entry(_OF_HEADER, _BLANK_HEADER), _entry(_OF_HEADER, checksum)))


def save(path: StrPath, model: Any, config: Mapping[str, Any] | None = None) -> None:
    """Write every array of `model`, frozen ones included, to one safetensors file.

    The write is atomic: if it is interrupted, the former file is unchanged. The header holds checksums of itself and of
    the data, which `load` verifies.

    Args:
        path: the file to write.
        model: an ENN, or any tree of modules.
        config: JSON values from which a function can build the model again; `load` passes them to it.
    """
    from . import __version__

    try:
        text = json.dumps(dict(config or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`config` must hold JSON values only; {error}.") from None
    arrays = {name: _saved_form(name, leaf) for name, leaf in _named_arrays(model).items()}
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"`path` must name a file; {os.fspath(path)!r} is a folder.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"`path` must lie in an existing folder; got {os.fspath(path)!r}.")
    metadata = {"format": _FORMAT, "version": __version__, "config": text}
    with atomic_file(path) as temporary:
        safetensors.flax.save_file(arrays, temporary, metadata | {_OF_DATA: _BLANK_DATA, _OF_HEADER: _BLANK_HEADER})
        _write_checksums(temporary)


def _damaged(path: StrPath, reason: str) -> ValueError:
    """Return the error for a file that differs from what `save` wrote."""
    return ValueError(f"`path` must be a file as `save` wrote it; {os.fspath(path)!r} is damaged: {reason}.")


def _shapes(file: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays of an opened file."""
    return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a dictionary)


def _checked_header(path: StrPath, file: Any) -> Header:
    """Return the header of an opened file after comparing it with its checksum, if it has one."""
    metadata = file.metadata() or {}
    form = metadata.get("format")
    if form not in (_FORMAT, *_FORMER_FORMATS):
        raise ValueError(f"`path` must be a file written by `save`; {os.fspath(path)!r} is another safetensors file.")
    stated = metadata.get(_OF_HEADER, "")
    if (form == _FORMAT or stated or _OF_DATA in metadata) and stated != _header_checksum(_raw_header(path), stated):
        raise _damaged(path, "its header does not have the checksum that it states")
    try:
        config = json.loads(metadata.get("config", ""))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its configuration is not JSON, {error}") from None
    if not isinstance(config, dict) or "version" not in metadata:
        raise _damaged(path, "its header has no version, or a configuration that is no dictionary")
    return Header(metadata["version"], config)


def _check_data(path: StrPath, file: Any) -> None:
    """Raise if the data of an opened file do not have the checksum of its header, which was checked."""
    stated = file.metadata().get(_OF_DATA)
    if stated is not None and stated != _data_checksum(path, len(_raw_header(path))):
        raise _damaged(path, "its arrays do not have the checksum that its header states")


def read_header(path: StrPath) -> Header:
    """Return the version and the configuration of a saved file, without reading its arrays."""
    with open_safetensors(path) as file:
        return _checked_header(path, file)


def _mismatches(expected: dict[str, Any], file: Any) -> list[str]:
    """Return a phrase for each array that is missing, extra, or of another shape or type."""
    found = _shapes(file)
    phrases = [f"missing {name}" for name in expected if name not in found]
    phrases += [f"extra {name}" for name in sorted(found.keys() - expected.keys())]
    for name in sorted(found.keys() & expected.keys()):
        leaf = expected[name]
        want = jax.eval_shape(jr.key_data, leaf) if _is_key(leaf) else leaf
        if found[name] != want.shape:
            phrases.append(f"{name} has shape {found[name]} instead of {want.shape}")
    return phrases


def load(path: StrPath, like: _T | Callable[[dict[str, Any]], _T]) -> _T:
    """Read a model that `save` wrote.

    Nothing in the file runs: it holds arrays and JSON only. Checksums of the header and of the data are verified, so a
    flipped bit is an error. Files of former formats are read unchecked; save them again to add checksums.

    Args:
        path: the file to read.
        like: a model of the same structure (its values are not used), or a function from the saved configuration to
            one, which is traced for its shapes only.

    Returns:
        A model with the structure of `like` and the arrays of the file.
    """
    with open_safetensors(path) as file:
        header = _checked_header(path, file)
        if isinstance(like, eqx.Module) or not callable(like):
            template = like
        else:
            template = eqx.filter_eval_shape(like, header.config)
        expected = _named_arrays(template)
        phrases = _mismatches(expected, file)
        if phrases:
            raise ValueError(
                f"`like` must have the arrays of {os.fspath(path)!r} (version {header.version}); "
                f"the file differs: {', '.join(phrases)}."
            )
        _check_data(path, file)
        arrays = {name: file.get_tensor(name) for name in expected}
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
