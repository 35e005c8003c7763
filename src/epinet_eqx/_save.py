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

from ._files import atomic_file, open_safetensors

_T = TypeVar("_T")
_FORMAT = "epinet_eqx 3"
# Without checksums, or with those of another algorithm: read unchecked.
_FORMER_FORMATS = ("epinet_eqx", "epinet_eqx 2")
# No former format has such entries, so a flipped bit in the name of the format is found, too.
_OF_HEADER, _OF_ARRAYS = "checksum_of_header", "checksum_of_arrays"
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
    """Return a leaf as it is saved: keys as their bits, and nothing in a smaller type."""
    array = jnp.asarray(jr.key_data(leaf) if _is_key(leaf) else leaf)
    if not _is_key(leaf) and array.dtype != leaf.dtype:
        raise ValueError(
            f"`model` must hold arrays of types that JAX has, unless `jax_enable_x64` is set; {name} is {leaf.dtype}."
        )
    return array


def _header_checksum(metadata: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return the checksum of the metadata and of the names and shapes of all arrays."""
    fields = {name: value for name, value in metadata.items() if name != _OF_HEADER}
    text = json.dumps([fields, {name: list(shape) for name, shape in shapes.items()}], sort_keys=True)
    return f"{zlib.crc32(text.encode()):08x}"


class _Digest:
    """The checksum of arrays that are added in the order of their names: a hash of the sums of blocks of 16 KiB.

    Adding 64-bit words takes an eighth of the time of CRC-32, and a change of one word always changes the sum of its
    block. The sums detect accidental damage, not forgery.
    """

    def __init__(self):
        """Initialize without arrays."""
        self._hash = hashlib.blake2b(digest_size=8)

    def add(self, name: str, array: Array) -> Array:
        """Return an array after adding it; right after it was read, while it is in the processor's cache."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        whole = content.size - content.size % (8 * _BLOCK_WORDS)
        self._hash.update(f"{name} {array.dtype} {content.size} ".encode())
        self._hash.update(content[:whole].view("<u8").reshape(-1, _BLOCK_WORDS).sum(axis=1, dtype=np.uint64).tobytes())
        self._hash.update(content[whole:].tobytes())
        return array

    def checksum(self) -> str:
        """Return the checksum in hexadecimal."""
        return self._hash.hexdigest()


def save(path: str | os.PathLike[str], model: Any, config: Mapping[str, Any] | None = None) -> None:
    """Write every array of `model`, frozen ones included, to one safetensors file.

    The write is atomic: if it is interrupted, the former file is unchanged. The header holds checksums of itself and of
    the arrays, which `load` verifies.

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
    digest = _Digest()
    arrays = {name: digest.add(name, _saved_form(name, leaf)) for name, leaf in sorted(_named_arrays(model).items())}
    path = pathlib.Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"`path` must lie in an existing folder; got {os.fspath(path)!r}.")
    metadata = {"format": _FORMAT, "version": __version__, "config": text, _OF_ARRAYS: digest.checksum()}
    metadata[_OF_HEADER] = _header_checksum(metadata, {name: array.shape for name, array in arrays.items()})
    with atomic_file(path) as temporary:
        safetensors.flax.save_file(arrays, temporary, metadata)


def _damaged(path: str | os.PathLike[str], reason: str) -> ValueError:
    """Return the error for a file that differs from what `save` wrote."""
    return ValueError(f"`path` must be a file as `save` wrote it; {os.fspath(path)!r} is damaged: {reason}.")


def _shapes(file: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays of an opened file."""
    return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a dictionary)


def _checked_header(path: str | os.PathLike[str], file: Any) -> tuple[Header, str | None]:
    """Return the header of an opened file and the checksum of its arrays, if it has one."""
    metadata = file.metadata() or {}
    form = metadata.get("format")
    if form not in (_FORMAT, *_FORMER_FORMATS):
        raise ValueError(f"`path` must be a file written by `save`; {os.fspath(path)!r} is another safetensors file.")
    if (form == _FORMAT or _OF_HEADER in metadata) and metadata.get(_OF_HEADER) != _header_checksum(
        metadata, _shapes(file)
    ):
        raise _damaged(path, "its header does not have the checksum that it states")
    try:
        config = json.loads(metadata.get("config", ""))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its configuration is not JSON, {error}") from None
    if not isinstance(config, dict) or "version" not in metadata:
        raise _damaged(path, "its header has no version, or a configuration that is no dictionary")
    return Header(metadata["version"], config), metadata.get(_OF_ARRAYS) if form == _FORMAT else None


def read_header(path: str | os.PathLike[str]) -> Header:
    """Return the version and the configuration of a saved file, without reading its arrays."""
    with open_safetensors(path) as file:
        return _checked_header(path, file)[0]


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


def load(path: str | os.PathLike[str], like: _T | Callable[[dict[str, Any]], _T]) -> _T:
    """Read a model that `save` wrote.

    Nothing in the file runs: it holds arrays and JSON only. Checksums of the header and of the arrays are verified, so
    a flipped bit is an error. Files of former formats are read unchecked; save them again to add checksums.

    Args:
        path: the file to read.
        like: a model of the same structure (its values are not used), or a function from the saved configuration to
            one, which is traced for its shapes only.

    Returns:
        A model with the structure of `like` and the arrays of the file.
    """
    with open_safetensors(path) as file:
        header, checksum = _checked_header(path, file)
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
        digest = _Digest()
        arrays = {name: digest.add(name, file.get_tensor(name)) for name in sorted(expected)}
    if checksum is not None and digest.checksum() != checksum:
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
