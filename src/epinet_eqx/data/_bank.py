"""The feature bank: logits and features of a frozen base over a data set, computed once."""

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from jaxtyping import Array, Float

from .._checks import check_positive, unknown_name
from .._files import StrPath
from ..losses import Batch
from ._arrays import Source, check_classes, check_stretch
from ._bank_files import BankWriter, DTypeName, Piece, Rows, open_bank, pieces, read_piece
from ._loader import Loader
from ._transforms import Normalization, Transform

Embed = Callable[[Any], tuple[Float[Array, " classes"], Float[Array, " features"]]]

# Tolerance between two runs of the same base, relative to the largest value.
_TOLERANCE = {"float16": 2e-3, "float32": 1e-3}


def stored_base(x: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return the logits and features of one example of a bank: the base for `attach` when training from a bank."""
    return x["logits"], x["features"]


@eqx.filter_jit
def _embed_batch(embed: Embed, x: Any) -> tuple[Array, Array]:
    """Return the logits and features of a batch."""
    return jax.vmap(embed)(x)


def _run(embed: Embed, arrays: dict[str, Any], batch_size: int) -> Rows:
    """Return the rows of one batch; a smaller last batch is padded to reuse the compiled program."""
    count = len(arrays["y"])
    filled = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf[:1].repeat(batch_size - count, axis=0)]), arrays["x"])
    logits, features = _embed_batch(embed, filled)
    return {
        "features": np.asarray(features)[:count],
        "logits": np.asarray(logits)[:count],
        "y": arrays["y"],
        "i": arrays["i"],
    }


def _check_embed(embed: Embed, x: Any) -> tuple[int, int]:
    """Return the number of logits and of features of one example."""
    shapes = eqx.filter_eval_shape(embed, jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], x))
    pair = isinstance(shapes, tuple) and len(shapes) == 2
    if not pair or any(not hasattr(s, "shape") or len(s.shape) != 1 for s in shapes):
        raise ValueError("`embed` must map one example to a pair of vectors `(logits, features)`.")
    return shapes[0].shape[0], shapes[1].shape[0]


class FeatureBank:
    """Features and logits of a frozen base over the splits of a data set, in a folder of safetensors shards.

    An epinet on `stored_base` trained from a bank equals the one trained through the base:

        bank = FeatureBank.build(base.with_features, {"train": train, "test": test}, "bank")
        enn = attach(stored_base, out_size=10, index_dim=20, example=bank.example(), key=key)
        result = fit(enn, bank.as_batch("train"), CrossEntropy(), num_steps=1000, key=key)
        enn = eqx.tree_at(lambda enn: enn.base, result.enn, Frozen(base))
    """

    def __init__(self, path: StrPath, *, verify: bool = True):
        """Open a finished bank.

        Args:
            path: the folder.
            verify: whether the checksums of all shards are compared, or sizes and headers only.
        """
        self._shards = open_bank(path, verify=verify)
        spec = self._shards.spec
        self.splits: dict[str, int] = spec["splits"]
        self.feature_dim: int = spec["feature_dim"]
        self.num_classes: int = spec["num_classes"]

    @classmethod
    def open(cls, path: StrPath, *, verify: bool = True) -> "FeatureBank":
        """Open a finished bank; see `FeatureBank`."""
        return cls(path, verify=verify)

    @classmethod
    def build(
        cls,
        embed: Embed,
        datasets: Mapping[str, Source],
        path: StrPath,
        *,
        transforms: Sequence[Transform] = (),
        normalization: Normalization | None = None,
        batch_size: int = 256,
        batches_per_shard: int = 32,
        dtype: DTypeName = "float32",
        num_threads: int = 0,
        num_workers: int = 0,
    ) -> "FeatureBank":
        """Run a base over data sets and store its outputs.

        An interrupted call resumes when repeated with the same arguments. It then recomputes and compares the first
        batch of each split, so that a bank cannot mix two bases.

        Args:
            embed: maps one example to `(logits, features)`, such as `with_features` of a network.
            datasets: the splits by name.
            path: the folder to write.
            transforms: applied to each image, such as `(CenterCrop(),)` for encoded images.
            normalization: converts pixels to floats.
            batch_size: examples per call of `embed`.
            batches_per_shard: batches per shard.
            dtype: the stored type of features and logits.
            num_threads: see `Loader`.
            num_workers: see `Loader`.
        """
        check_positive("batch_size", batch_size)
        check_positive("batches_per_shard", batches_per_shard)
        if not datasets:
            raise ValueError("`datasets` must have at least one split; got none.")
        loaders = {
            split: Loader(
                source,
                batch_size=batch_size,
                transforms=transforms,
                normalization=normalization,
                shuffle=False,
                num_epochs=1,
                drop_remainder=False,
                num_threads=num_threads,
                num_workers=num_workers,
                key=None,
            )
            for split, source in datasets.items()
        }
        writer: BankWriter | None = None
        for split, loader in loaders.items():
            with loader:
                first = loader.next_arrays()
                if writer is None:
                    num_classes, feature_dim = _check_embed(embed, first["x"])
                    writer = BankWriter(
                        path,
                        {name: len(source) for name, source in datasets.items()},
                        feature_dim=feature_dim,
                        num_classes=num_classes,
                        dtype=dtype,
                        shard_size=batch_size * batches_per_shard,
                    )
                if (present := writer.present(split)) is not None:
                    _compare(writer, present, _run(embed, first, batch_size))
                for piece in writer.missing(split):
                    number = piece.start // batch_size
                    batches = [first] if number == 0 else []
                    if number != 0 and loader.state()["next_batch"] != number:
                        loader.restore({**loader.state(), "next_batch": number})
                    while sum(len(batch["y"]) for batch in batches) < piece.stop - piece.start:
                        batches.append(loader.next_arrays())
                    rows = [_run(embed, batch, batch_size) for batch in batches]
                    writer.write(piece, {name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
        # The shards were just written or compared; opening the bank later compares checksums.
        return cls(path, verify=False)

    def _pieces(self, split: str) -> list[Piece]:
        """Return the shards of a split."""
        if split not in self.splits:
            raise unknown_name("split", split, self.splits)
        return pieces(split, self.splits[split], self._shards.spec["shard_size"])

    def as_batch(self, split: str, *, start: int = 0, stop: int | None = None) -> Batch:
        """Return a split in single precision, for `fit`; `x` is a dictionary of features and logits.

        Args:
            split: name of the split.
            start: position of the first example.
            stop: position after the last example; at most, and by default, the end of the split.
        """
        shards = self._pieces(split)
        end = check_stretch(start, stop, self.splits[split])
        parts = []
        for piece in shards:
            if piece.start < end and piece.stop > start:
                rows = read_piece(self._shards.path / piece.file)
                inside = slice(max(start - piece.start, 0), end - piece.start)
                parts.append({name: values[inside] for name, values in rows.items()})
        rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return Batch(_as_input(rows), check_classes(f"Split `{split}`", rows["y"], self.num_classes), rows["i"])

    def example(self) -> dict[str, Array]:
        """Return an input of zeros, as the `example` of `attach`."""
        return {"features": jnp.zeros(self.feature_dim), "logits": jnp.zeros(self.num_classes)}

    def source(self, split: str) -> Source:
        """Return a split as a source for `Loader`, which reads examples when they are needed."""
        return BankSource(self, split, self._pieces(split))


def _as_input(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the input of an ENN on `stored_base`."""
    return {name: rows[name].astype(np.float32) for name in ("features", "logits")}


def _compare(writer: BankWriter, piece: Piece, fresh: Rows) -> None:
    """Raise unless the rows of a resumed bank equal those computed now."""
    path = writer.shards.path / piece.file
    stored, fresh = read_piece(path), writer.converted(piece.file, fresh)
    for name, new in fresh.items():
        old = stored[name][: len(new)]
        # A bank of outputs alone has no features.
        largest = float(np.abs(new).max(initial=0))
        tolerance = _TOLERANCE[writer.dtype] * largest if name in ("features", "logits") else 0
        if np.abs(old.astype(np.float64) - new.astype(np.float64)).max(initial=0) > tolerance:
            raise ValueError(f"`embed` and `datasets` must be those that {str(path)!r} was made with; {name} differ.")


class BankSource:
    """One split of a bank, read example by example, for splits that do not fit into memory."""

    def __init__(self, bank: FeatureBank, split: str, shards: list[Piece]):
        """Initialize from a bank; see `FeatureBank.source`."""
        self._split = split
        self._starts = [piece.start for piece in shards]
        self._files = [str(bank._shards.path / piece.file) for piece in shards]
        self._length = bank.splits[split]
        self._num_classes = bank.num_classes
        self._opened: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes open the files themselves.
        return {**self.__dict__, "_opened": {}}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return one example."""
        shard = bisect.bisect_right(self._starts, position) - 1
        if shard not in self._opened:
            self._opened[shard] = safetensors.safe_open(self._files[shard], framework="numpy")
        row = position - self._starts[shard]
        rows = {
            name: self._opened[shard].get_slice(name)[row : row + 1][0] for name in ("features", "logits", "y", "i")
        }
        if not 0 <= rows["y"] < self._num_classes:
            raise ValueError(
                f"{self._files[shard]!r} must hold labels from 0 to {self._num_classes - 1}; got {rows['y']}."
            )
        return {"x": _as_input(rows), "y": rows["y"], "i": rows["i"]}

    def describe(self, position: int) -> str:
        """Return a name for one example in error messages."""
        return f"example {position} of {self._split}"
