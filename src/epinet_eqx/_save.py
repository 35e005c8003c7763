"""Models as files: one safetensors file that holds every array and a readable header."""

import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import safetensors
import safetensors.flax
from jaxtyping import Array

_T = TypeVar("_T")
_FORMAT = "epinet_eqx"


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


def save(path: str | os.PathLike[str], model: Any, config: Mapping[str, Any] | None = None) -> None:
    """Write every array of `model`, frozen ones included, to one safetensors file.

    The file appears whole or not at all: an interrupted write leaves what was there before.

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
    metadata = {"format": _FORMAT, "version": __version__, "config": text}
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        safetensors.flax.save_file(arrays, temporary, metadata)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise


def open_safetensors(path: str | os.PathLike[str]) -> Any:
    """Open a file, or say in a sentence why it cannot be read."""
    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"`path` must name an existing file; got {os.fspath(path)!r}.")
    try:
        return safetensors.safe_open(path, framework="flax")
    except safetensors.SafetensorError as error:
        raise ValueError(f"`path` must be a whole safetensors file; {os.fspath(path)!r} is damaged: {error}.") from None


def read_header(path: str | os.PathLike[str]) -> Header:
    """Return the version and the configuration that a file was saved with, without reading its arrays."""
    with open_safetensors(path) as file:
        metadata = file.metadata() or {}
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"`path` must be a file written by `save`; {os.fspath(path)!r} is another safetensors file.")
    return Header(metadata["version"], json.loads(metadata["config"]))


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

    Nothing in the file is run: it holds arrays and JSON only.

    Args:
        path: the file to read.
        like: a model of the same structure (its values are not used), or a function from the saved configuration to
            one, which is traced for its shapes only.

    Returns:
        A model with the structure of `like` and the arrays of the file.
    """
    header = read_header(path)
    if isinstance(like, eqx.Module) or not callable(like):
        template = like
    else:
        template = eqx.filter_eval_shape(like, header.config)
    expected = _named_arrays(template)
    with open_safetensors(path) as file:
        phrases = _mismatches(expected, file)
        if phrases:
            raise ValueError(
                f"`like` must have the arrays of {os.fspath(path)!r} (version {header.version}); "
                f"the file differs: {', '.join(phrases)}."
            )
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
