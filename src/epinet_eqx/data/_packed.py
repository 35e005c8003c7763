"""Outputs of a base in one small file: features in bytes, and logits from the stored linear layer or in bytes."""

import io
import lzma
import os
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_positive
from .._files import StrPath, atomic_file, read_npz
from ..losses import Batch
from ._arrays import check_classes, check_stretch

_FORMAT = 1
# Labels are stored in 16 bits.
_MAX_CLASSES = 2**15
# Differences of logits or features below this do not matter.
_SMALL = 1e-5


class LinearLayer(NamedTuple):
    """The last layer of a base: logits are `features @ weight.T + bias`."""

    weight: np.ndarray
    bias: np.ndarray


def _quantize(name: str, values: np.ndarray, axis: int, levels: int, kind: type[np.floating]) -> dict[str, np.ndarray]:
    """Return integers from 0 to below `levels`, and the lowest value and the step along an axis as floats of a kind."""
    # Overflow and ranges too small for a step are reported below.
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (function(values, axis=axis, keepdims=True).astype(kind) for function in (np.min, np.max))
        step = ((high - low) / (levels - 1)).astype(kind)
        step = np.where(step > 0, step, 1).astype(kind)
        codes = np.clip(np.round((values - low) / step), 0, levels - 1)
        wrong = ~(np.abs(codes * step.astype(np.float32) + low - values) <= step.astype(np.float32) + _SMALL)
    if wrong.any():
        raise ValueError(
            f"`{name}` must be numbers whose ends {np.dtype(kind)} can tell from one another to a step; "
            f"got {values[wrong][0]} in a range from {values.min()} to {values.max()}."
        )
    return {"": codes.astype(np.uint8 if levels <= 256 else np.uint16), "_low": low, "_step": step}


def _matrix(name: str, values: Any, shape: tuple[int, int | None]) -> np.ndarray:
    """Return finite numbers of this shape (None for any size but zero) in single precision."""
    found = np.asarray(values)
    fits = found.ndim == 2 and found.size > 0 and found.shape[0] == shape[0] and shape[1] in (None, found.shape[1])
    if not fits or found.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold real numbers of shape {shape}; got {found.dtype} of shape {found.shape}.")
    with np.errstate(over="ignore"):
        found = found.astype(np.float32)
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite in single precision; got {found[~np.isfinite(found)][0]}.")
    return found


def _check_splits(
    splits: Mapping[str, Mapping[str, Any]], linear: LinearLayer | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the labels of each split, and the stored features and logits of all splits in turn."""
    if not splits or not all(isinstance(split, str) for split in splits):
        raise ValueError(f"`splits` must hold at least one split, by names that are text; got {list(splits)}.")
    for split, rows in splits.items():
        missing = {"y", "logits" if linear is None else "features"} - rows.keys()
        if missing:
            raise ValueError(f"`splits` must hold {', '.join(sorted(missing))} of {split!r}; got {', '.join(rows)}.")
    given = sum("features" in rows for rows in splits.values())
    if given not in (0, len(splits)):
        raise ValueError(f"`splits` must hold features of every split or of none; got those of {given}.")
    stored = [name for name, wanted in (("features", given), ("logits", linear is None)) if wanted]
    labels: dict[str, np.ndarray] = {}
    parts: dict[str, list[np.ndarray]] = {name: [] for name in stored}
    for split, rows in splits.items():
        labels[split] = check_classes(f"`{split}`", rows["y"], _MAX_CLASSES)
        for name, own in parts.items():
            width = own[0].shape[1] if own else None
            own.append(_matrix(f"`{name}` of {split!r}", rows[name], (len(labels[split]), width)))
    arrays = {name: np.concatenate(own) for name, own in parts.items()}
    num_classes = arrays["logits"].shape[1] if linear is None else len(linear.weight)
    for split, y in labels.items():
        check_classes(f"`{split}`", y, num_classes)
    return labels, arrays


def _numbers(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int | None, ...], kinds: str) -> np.ndarray:
    """Return an array of a file, which must have this shape (None for any size), and finite numbers of these kinds."""
    found = arrays[name]
    fits = found.ndim == len(shape) and all(want in (None, size) for want, size in zip(shape, found.shape, strict=True))
    if not fits or found.dtype.kind not in kinds or (found.dtype.kind == "f" and not np.isfinite(found).all()):
        raise ValueError(f"`{name}` is {found.dtype} of shape {found.shape}, or not finite")
    return found


def _restore(arrays: Mapping[str, np.ndarray], name: str, axis: int) -> np.ndarray:
    """Return the numbers that were quantized along an axis."""
    codes = _numbers(arrays, name, (None, None), "u")
    shape = (1, codes.shape[1]) if axis == 0 else (codes.shape[0], 1)
    low, step = (_numbers(arrays, f"{name}_{part}", shape, "f").astype(np.float32) for part in ("low", "step"))
    return codes * step + low


def _labels(arrays: Mapping[str, np.ndarray], num_classes: int) -> dict[str, np.ndarray]:
    """Return the labels of each split."""
    splits = [name.removeprefix("y_") for name in arrays if name.startswith("y_")]
    if not splits:
        raise ValueError("it has no split")
    return {split: check_classes(split, _numbers(arrays, f"y_{split}", (None,), "iu"), num_classes) for split in splits}


def pack_bank(
    path: StrPath,
    splits: Mapping[str, Mapping[str, np.ndarray]],
    *,
    linear: LinearLayer | None = None,
    levels: int = 256,
    linear_levels: int = 256,
    compress: bool = True,
) -> None:
    """Write outputs of a base to one file, which `PackedBank` opens.

    Features are quantized per dimension. If `linear` is given, it is stored, quantized per class, and logits are
    computed again from the quantized features; else logits are quantized per row.

    Args:
        path: the file, which is replaced if it exists.
        splits: for each split `y`, and `features` or `logits` or both.
        linear: the layer that makes logits of features.
        levels: number of values of a feature or a logit, at most 256; fewer make a smaller file.
        linear_levels: number of values of a weight, at most 65536.
        compress: whether the file is compressed, which takes most of the time.
    """
    for name, value, most in (("levels", levels, 256), ("linear_levels", linear_levels, 65536)):
        check_positive(name, value)
        if not 2 <= value <= most:
            raise ValueError(f"`{name}` must be from 2 to {most}; got {value}.")
    labels, rows = _check_splits(splits, linear)
    arrays: dict[str, np.ndarray] = {"format": np.array(_FORMAT)}
    arrays |= {f"y_{name}": y.astype(np.int16) for name, y in labels.items()}

    def add(name: str, values: np.ndarray, axis: int, levels: int, kind: type[np.floating]) -> None:
        parts = _quantize(name, values, axis, levels, kind)
        # Dimension by dimension, which compresses better.
        parts[""] = np.asfortranarray(parts[""])
        arrays.update({f"{name}{part}": value for part, value in parts.items()})

    if "features" in rows:
        add("features", rows["features"], 0, levels, np.float32)
    if linear is None:
        add("logits", rows["logits"], 1, levels, np.float16)
    else:
        num_classes = len(linear.weight)
        weight = _matrix("`linear.weight`", linear.weight, (num_classes, rows["features"].shape[1]))
        add("weight", weight, 1, linear_levels, np.float32)
        arrays["bias"] = _matrix("`linear.bias`", np.reshape(linear.bias, (1, -1)), (1, num_classes))[0]
    method = zipfile.ZIP_LZMA if compress else zipfile.ZIP_STORED
    with atomic_file(pathlib.Path(path)) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, value in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, value)
            # An entry without a date: the same outputs are the same file.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), method)


class PackedBank:
    """Features and logits of a frozen base in one file that `pack_bank` wrote: a small `FeatureBank` in memory.

    It is read like a `FeatureBank`. Numbers are those of 8 bits, not the base's own, so it does not claim to be one.

    Attributes:
        splits: number of examples of each split.
        feature_dim: number of features; 0 if there are none.
        num_classes: number of logits.
        linear: the layer that makes logits of features, or None.
    """

    def __init__(self, path: StrPath):
        """Open a bank; every array is checked, since the file may come from elsewhere."""
        try:
            arrays = read_npz(pathlib.Path(path))
            if int(_numbers(arrays, "format", (), "iu")) != _FORMAT:
                raise ValueError(f"format {arrays['format']}")
            features = _restore(arrays, "features", 0) if "features" in arrays else None
            self.linear = None
            if features is not None and "weight" in arrays:
                weight = _restore(arrays, "weight", 1)
                self.linear = LinearLayer(weight, _numbers(arrays, "bias", (len(weight),), "f"))
                logits = features @ weight.T + self.linear.bias
            else:
                logits = _restore(arrays, "logits", 1)
            y = _labels(arrays, logits.shape[1])
            total = sum(map(len, y.values()))
            features = np.zeros((total, 0), np.float32) if features is None else features
            if len(features) != total or len(logits) != total or not np.isfinite(logits).all():
                raise ValueError(f"{len(features)} rows for {total} labels, or numbers that are too large")
        except (KeyError, ValueError, lzma.LZMAError) as error:
            raise ValueError(f"{os.fspath(path)!r} must be a bank of `pack_bank`; {error}.") from None
        self.splits = {name: len(value) for name, value in y.items()}
        self.feature_dim = features.shape[1]
        self.num_classes = logits.shape[1]
        self._rows: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        start = 0
        for name, labels in y.items():
            stop = start + len(labels)
            self._rows[name] = features[start:stop], logits[start:stop], labels.astype(np.int32)
            start = stop

    def as_batch(self, split: str, *, start: int = 0, stop: int | None = None) -> Batch:
        """Return a split, or a part of it, for `fit`: `x` is a dictionary of features and logits."""
        if split not in self._rows:
            raise ValueError(f"`split` must be among {', '.join(self._rows)}; got {split!r}.")
        stop = check_stretch(start, stop, self.splits[split])
        features, logits, y = (values[start:stop] for values in self._rows[split])
        return Batch({"features": features, "logits": logits}, y, np.arange(start, start + len(y), dtype=np.int32))

    def example(self) -> dict[str, Array]:
        """Return an input of zeros, for the shapes that `attach` asks for."""
        return {"features": jnp.zeros(self.feature_dim), "logits": jnp.zeros(self.num_classes)}


def quantization_loss(bank: PackedBank, splits: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the largest change of the mean log-loss of a split by quantization."""

    def loss(logits: np.ndarray, y: np.ndarray) -> float:
        wide = logits.astype(np.float64)
        top = wide.max(axis=1)
        picked = np.take_along_axis(wide, np.asarray(y, np.int64)[:, None], axis=1)[:, 0]
        return float(np.mean(top + np.log(np.exp(wide - top[:, None]).sum(axis=1)) - picked))

    return max(
        abs(loss(np.asarray(bank.as_batch(name).x["logits"]), rows["y"]) - loss(rows["logits"], rows["y"]))
        for name, rows in splits.items()
    )
