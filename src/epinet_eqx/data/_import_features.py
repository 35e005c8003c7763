"""Feature banks from files that any framework can write."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._files import StrPath, read_npz, require_file
from ._arrays import check_numbers
from ._bank import FeatureBank
from ._bank_files import BankWriter, DTypeName, read_piece


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the arrays of an npz or safetensors file, without running anything in it."""
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".safetensors":
        return read_piece(require_file(path))
    raise ValueError(f"`files` must end in .npz or .safetensors; got {str(path)!r}.")


def _rows(path: pathlib.Path, names: Mapping[str, str | None], num_classes: int | None) -> dict[str, Any]:
    """Return the rows of one file under the names of a bank."""
    content = _read(path)
    for name in filter(None, names.values()):
        if name not in content:
            raise ValueError(f"{str(path)!r} must have an array `{name}`; it has {', '.join(content) or 'none'}.")
    rows: dict[str, Any] = {ours: content[name] for ours, name in names.items() if name is not None}
    labels = rows["y"]
    if labels.ndim != 1 or labels.size == 0 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"`{names['y']}` of {str(path)!r} must be a vector of integers; got {labels.dtype} of shape {labels.shape}."
        )
    count = len(labels)
    if "logits" not in rows:
        rows["logits"] = np.zeros((count, num_classes or 0), np.float32)
    for name in ("features", "logits"):
        shape, dtype = rows[name].shape, rows[name].dtype
        # JAX's hierarchy of types, since numpy's does not know bfloat16.
        if len(shape) != 2 or shape[0] != count or 0 in shape or not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(
                f"`{names[name] or name}` of {str(path)!r} must be floats with {count} rows; got "
                f"{dtype} of shape {shape}."
            )
    numbers = rows.get("i", np.arange(count))
    rows["i"] = check_numbers(f"`{names['i']}` of {str(path)!r}", numbers, count)
    return rows


def import_features(
    files: Mapping[str, StrPath],
    path: StrPath,
    *,
    features: str = "features",
    logits: str | None = "logits",
    labels: str = "labels",
    ids: str | None = None,
    num_classes: int | None = None,
    dtype: DTypeName = "float32",
    shard_size: int = 8192,
) -> FeatureBank:
    """Make a feature bank from npz or safetensors files, which any framework can write.

    Args:
        files: one file for each split by name.
        path: the folder to write; an interrupted call resumes when repeated.
        features: name of the array of features, one row per example.
        logits: name of the array of the base's logits; None if there is none, for logits of zero.
        labels: name of the vector of labels.
        ids: name of the vector of the examples' numbers; by default their positions.
        num_classes: number of classes; needed if `logits` is None.
        dtype: the stored type of features and logits.
        shard_size: examples per shard.
    """
    if (logits is None) == (num_classes is None):
        raise ValueError(f"Either `logits` or `num_classes` must be given; got {logits!r} and {num_classes!r}.")
    if not files:
        raise ValueError("`files` must have at least one split; got none.")
    names = {"features": features, "logits": logits, "y": labels, "i": ids}
    splits = {split: _rows(pathlib.Path(file), names, num_classes) for split, file in files.items()}
    widths = {(rows["features"].shape[1], rows["logits"].shape[1]) for rows in splits.values()}
    if len(widths) > 1:
        raise ValueError(f"`files` must agree in the number of features and logits; got {sorted(widths)}.")
    ((feature_dim, width),) = widths
    writer = BankWriter(
        path,
        {split: len(rows["y"]) for split, rows in splits.items()},
        feature_dim=feature_dim,
        num_classes=width,
        dtype=dtype,
        shard_size=shard_size,
    )
    for split, rows in splits.items():
        for piece in writer.missing(split):
            writer.write(piece, {name: value[piece.start : piece.stop] for name, value in rows.items()})
    # The shards were just written; opening the bank later compares checksums.
    return FeatureBank(path, verify=False)
