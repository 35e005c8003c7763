"""Features that another framework wrote, as a feature bank."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._files import read_npz, require_file
from ._bank import FeatureBank
from ._bank_files import BankWriter, DTypeName, read_piece


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the arrays of an npz or safetensors file; neither can run code."""
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".safetensors":
        return read_piece(require_file(path))
    raise ValueError(f"`files` must end in .npz or .safetensors; got {str(path)!r}.")


def _rows(path: pathlib.Path, names: Mapping[str, str | None], num_classes: int | None) -> dict[str, Any]:
    """Return the rows of one file by our names."""
    content = _read(path)
    for name in filter(None, names.values()):
        if name not in content:
            raise ValueError(f"{str(path)!r} must have an array `{name}`; it has {', '.join(content) or 'none'}.")
    rows: dict[str, Any] = {ours: content[name] for ours, name in names.items() if name is not None}
    count = len(rows["y"]) if rows["y"].ndim == 1 else -1
    if count < 1 or not np.issubdtype(rows["y"].dtype, np.integer):
        raise ValueError(f"`{names['y']}` of {str(path)!r} must be a vector of integers; got {rows['y'].shape}.")
    if "logits" not in rows:
        rows["logits"] = np.zeros((count, num_classes or 0), np.float32)
    rows.setdefault("i", np.arange(count, dtype=np.int32))
    for name in ("features", "logits"):
        shape = rows[name].shape
        if len(shape) != 2 or shape[0] != count or 0 in shape or not np.issubdtype(rows[name].dtype, np.floating):
            raise ValueError(
                f"`{names[name] or name}` of {str(path)!r} must be floats with {count} rows; got "
                f"{rows[name].dtype} of shape {shape}."
            )
    if rows["i"].shape != (count,) or not np.issubdtype(rows["i"].dtype, np.integer):
        raise ValueError(f"`{names['i']}` of {str(path)!r} must be {count} integers; got shape {rows['i'].shape}.")
    if not (rows["i"] == rows["i"].astype(np.int32)).all():
        raise ValueError(f"`{names['i']}` of {str(path)!r} must fit into 32 bits.")
    return rows


def import_features(
    files: Mapping[str, str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    features: str = "features",
    logits: str | None = "logits",
    labels: str = "labels",
    ids: str | None = None,
    num_classes: int | None = None,
    dtype: DTypeName = "float32",
    shard_size: int = 8192,
) -> FeatureBank:
    """Make a feature bank of npz or safetensors files, as any framework writes them.

    Args:
        files: one file for each split by name.
        path: the folder to write; interrupted, it goes on where it was.
        features: name of the array of features, one row per example.
        logits: name of the array of the base's logits; None if there is none, and then they are zero.
        labels: name of the vector of labels.
        ids: name of the vector of the examples' numbers; by default they are numbered from zero.
        num_classes: number of classes; needed if `logits` is None.
        dtype: how features and logits are stored.
        shard_size: examples of a shard.
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
    # Just written: who opens the bank later compares checksums.
    return FeatureBank(path, verify=False)
