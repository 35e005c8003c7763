"""Everything that averages over the index: which indices, and sums over them in chunks, so that memory is flat in M."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from ._checks import as_real_array, check_finite, check_key, check_positive, check_shape, is_traced, require
from ._enn import AbstractENN, check_enn
from ._xla import max_by_halves, sum_by_product
from .indices import AbstractIndex

# Outputs of this many numbers per chunk fit a few megabytes; larger chunks are not faster.
_CHUNK_OUTPUTS = 2**21
_MAX_BATCH = 1024
# The number of an index is a 32-bit integer.
_MAX_SAMPLES = 2**31 - 1

_Carry = TypeVar("_Carry")


class Draws(eqx.Module):
    r"""The indices that a prediction averages over, shared by all of its inputs.

    `Draws.sample(enn.index, 1000, key=key)` is the Monte Carlo average of Eq. (2) over $M = 1000$ indices;
    `Draws.all(enn.index)` averages exactly over a finite support, such as the particles of an ensemble; `Draws.given`
    takes indices that are known.

    A key stands for a sequence of indices: equal keys give equal indices, and a larger M begins with the smaller one.
    Predictions made with the same draws can therefore be compared, and combined, index by index.
    """

    index: AbstractIndex
    key: PRNGKeyArray | None
    zs: Shaped[Array, "samples ..."] | None
    num_samples: int = eqx.field(static=True)
    exact: bool = eqx.field(static=True)
    chunk_size: int = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)

    @classmethod
    def sample(
        cls,
        index: AbstractIndex,
        num_samples: int,
        *,
        key: PRNGKeyArray,
        chunk_size: int = 16,
        batch_size: int | None = None,
    ) -> "Draws":
        """Return the first `num_samples` indices of the sequence that `key` stands for.

        Args:
            index: the reference distribution, `enn.index`.
            num_samples: number of indices M.
            key: random key of the indices.
            chunk_size: how many indices are computed at a time; memory grows with it, not with M.
            batch_size: how many inputs are computed at a time; by default chosen to keep a chunk's outputs small.
        """
        check_positive("num_samples", num_samples)
        if num_samples > _MAX_SAMPLES:
            raise ValueError(f"`num_samples` must be at most {_MAX_SAMPLES}; got {num_samples}.")
        check_key("key", key)
        _check_index(index)
        return cls(index, key, None, num_samples, False, *_check_sizes(chunk_size, batch_size))

    @classmethod
    def all(cls, index: AbstractIndex, *, chunk_size: int = 16, batch_size: int | None = None) -> "Draws":
        """Return every index of a finite support once: averages over them are exact.

        Args:
            index: a reference distribution with finite support, such as the index of an ensemble.
            chunk_size: as in `sample`.
            batch_size: as in `sample`.
        """
        _check_index(index)
        support = index.support()
        if support is None:
            raise ValueError(
                f"`index` must have a finite support to average over all of it; got {type(index).__name__}. "
                "Use `Draws.sample`."
            )
        return cls(index, None, None, support.shape[0], True, *_check_sizes(chunk_size, batch_size))

    @classmethod
    def given(
        cls,
        index: AbstractIndex,
        zs: Shaped[Array, "samples ..."],
        *,
        chunk_size: int = 16,
        batch_size: int | None = None,
    ) -> "Draws":
        """Return these indices, as if they had been sampled.

        Args:
            index: the reference distribution, `enn.index`.
            zs: indices, along the leading axis.
            chunk_size: as in `sample`.
            batch_size: as in `sample`.
        """
        _check_index(index)
        if not _is_key(zs):
            zs = check_finite("zs", as_real_array("zs", zs))
        if zs.ndim == 0 or zs.shape[0] == 0:
            raise ValueError(f"`zs` must hold at least one index along its leading axis; got shape {zs.shape}.")
        check_shape("zs", zs, (zs.shape[0], *index.shape))
        support = index.support()
        if support is not None and not is_traced(zs):
            _check_members(zs, support)
        return cls(index, None, zs, zs.shape[0], False, *_check_sizes(chunk_size, batch_size))

    @classmethod
    def auto(
        cls,
        index: AbstractIndex,
        num_samples: int,
        *,
        key: PRNGKeyArray,
        chunk_size: int = 16,
        batch_size: int | None = None,
    ) -> "Draws":
        """Return `Draws.all` for a finite support of at most `num_samples` indices, otherwise `Draws.sample`.

        For code that evaluates any ENN: an ensemble exactly, an epinet by sampling.

        Args:
            index: the reference distribution, `enn.index`.
            num_samples: the largest number of indices M.
            key: random key of the indices; a finite support does not use it.
            chunk_size: as in `sample`.
            batch_size: as in `sample`.
        """
        check_positive("num_samples", num_samples)
        _check_index(index)
        support = index.support()
        if support is not None and support.shape[0] <= num_samples:
            return cls.all(index, chunk_size=chunk_size, batch_size=batch_size)
        return cls.sample(index, num_samples, key=key, chunk_size=chunk_size, batch_size=batch_size)

    def take(self, count: int, start: int | Shaped[Array, ""]) -> Shaped[Array, "samples ..."]:
        """Return `count` indices from number `start` on; beyond the end of known ones the last is repeated."""
        if self.key is not None:
            return self.index.sample_many(count, key=self.key, start=start)
        known = self.index.support() if self.exact else self.zs
        assert known is not None
        return known[jnp.minimum(start + jnp.arange(count), self.num_samples - 1)]

    def indices(self) -> Shaped[Array, "samples ..."]:
        """Return all of them at once."""
        return self.take(self.num_samples, 0)

    def fold(
        self,
        step: Callable[[_Carry, Shaped[Array, "samples ..."], Bool[Array, " samples"]], _Carry],
        carry: _Carry,
        *,
        start: int = 0,
        stop: int | None = None,
    ) -> _Carry:
        """Return `carry` after `step(carry, zs, valid)` for each chunk of the indices `start` to `stop - 1`.

        The last chunk is as long as the others; `valid` says which of its entries count.
        """
        stop = self.num_samples if stop is None else stop
        chunk = min(self.chunk_size, stop - start)

        def body(number: Any, carry: _Carry) -> _Carry:
            first = start + number * chunk
            valid = first + jnp.arange(chunk) < stop
            return step(carry, self.take(chunk, first), valid)

        return jax.lax.fori_loop(0, -((start - stop) // chunk), body, carry)


def _check_index(index: Any) -> None:
    """Raise unless `index` is a reference distribution."""
    if not isinstance(index, AbstractIndex):
        raise ValueError(f"`index` must be a reference distribution, such as `enn.index`; got {type(index).__name__}.")


def _is_key(zs: Any) -> bool:
    """Return whether indices are random keys."""
    return isinstance(zs, Array) and jnp.issubdtype(zs.dtype, jax.dtypes.prng_key)


def _check_members(zs: Shaped[Array, "samples ..."], support: Shaped[Array, "values ..."]) -> None:
    """Raise unless every index is one of a finite support: others would be clamped silently."""
    if zs.dtype != support.dtype:
        raise ValueError(f"`zs` must hold indices of type {support.dtype}; got {zs.dtype}.")
    outside = ~np.isin(np.asarray(zs), np.asarray(support))
    if outside.any():
        raise ValueError(
            f"`zs` must hold indices of the support, {support.shape[0]} values from {support.min()} to "
            f"{support.max()}; got {np.asarray(zs)[outside][0]}."
        )


def _check_sizes(chunk_size: int, batch_size: int | None) -> tuple[int, int | None]:
    """Return how many indices and inputs to compute at a time, which must be positive."""
    check_positive("chunk_size", chunk_size)
    if batch_size is not None:
        check_positive("batch_size", batch_size)
    return chunk_size, batch_size


def check_draws(enn: AbstractENN, draws: Draws) -> Draws:
    """Return `draws` if they are indices of `enn`: those of another index may be in range and still mean nothing."""
    check_enn("enn", enn)
    if not isinstance(draws, Draws):
        raise ValueError(
            "`draws` must be `Draws` of the index, such as `Draws.sample(enn.index, 1000, key=key)`; "
            f"got {type(draws).__name__}."
        )
    leaves, others = jax.tree.leaves(draws.index), jax.tree.leaves(enn.index)
    if draws.index is enn.index or (
        jax.tree.structure(draws.index) == jax.tree.structure(enn.index)
        and all(own is other for own, other in zip(leaves, others, strict=True))
    ):
        return draws
    same = eqx.tree_equal(draws.index, enn.index)
    message = f"`draws` must be of the index of `enn`, {enn.index}; got {draws.index}."
    if same is False:
        raise ValueError(message)
    return draws if same is True else require(draws, ~jnp.asarray(same), message)


def choose_batch_size(draws: Draws, num_outputs: int) -> int:
    """Return how many inputs to compute at a time: as requested, or so that the outputs of a chunk stay small."""
    if draws.batch_size is not None:
        return draws.batch_size
    chunk = min(draws.chunk_size, draws.num_samples)
    return min(_MAX_BATCH, max(1, _CHUNK_OUTPUTS // (chunk * num_outputs)))


@jax.jit
def _has_nan(leaves: list[Array]) -> Bool[Array, ""]:
    """Return whether any of the arrays holds NaN; compiled, because eager steps would run one by one."""
    return jnp.any(jnp.stack([jnp.any(jnp.isnan(leaf)) for leaf in leaves]))


def check_result(name: str, result: PyTree, draws: Draws) -> PyTree:
    """Return `result` if it holds no NaN; otherwise the network itself said NaN, which is an error and not a number."""
    failed = _has_nan([leaf for leaf in jax.tree.leaves(result) if eqx.is_inexact_array(leaf)])
    message = f"`enn` must not output NaN; got NaN in the {name} over {draws.num_samples} indices."
    return require(result, failed, message)


def _finite_or_zero(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return `x` where it is finite: an infinite shift would turn a sum without terms into NaN."""
    return jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x))


class LogSum(eqx.Module):
    """A running logarithm of a sum of exponentials, as the largest term and the sum relative to it.

    Once the largest term has been seen, adding a chunk rounds the sum only, not its (possibly large) logarithm.
    """

    top: Float[Array, "..."]
    total: Float[Array, "..."]

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> "LogSum":
        """Return empty sums."""
        return cls(jnp.full(shape, -jnp.inf), jnp.zeros(shape))

    def add(self, terms: Float[Array, "samples ..."], valid: Bool[Array, " samples"]) -> "LogSum":
        """Return the sums with the exponentials of the valid terms added."""
        terms = jnp.where(valid.reshape(-1, *(1 for _ in self.top.shape)), terms, -jnp.inf)
        top = jnp.maximum(self.top, max_by_halves(jax.lax.stop_gradient(terms)))
        shift = _finite_or_zero(top)
        total = self.total * jnp.exp(self.top - shift) + sum_by_product(valid, jnp.exp(terms - shift[None]))
        return LogSum(top, total)

    def log_mean(self, count: int) -> Float[Array, "..."]:
        """Return the logarithm of the sum over `count`."""
        return jnp.log(self.total) + _finite_or_zero(self.top) - jnp.log(jnp.asarray(count, self.total.dtype))


def outputs_at(
    enn: AbstractENN, embeddings: PyTree[Array], zs: Shaped[Array, "samples ..."]
) -> Float[Array, "samples batch classes"]:
    """Return the outputs of embedded inputs at indices that all inputs share."""
    return jax.vmap(enn.heads, in_axes=(0, None), out_axes=1)(embeddings, zs)


def map_batches(
    function: Callable[[PyTree[Array]], PyTree[Array]], tree: PyTree[Array], *, length: int, batch_size: int
) -> PyTree[Array]:
    """Return `function(tree)`, computed for `batch_size` of the `length` leading rows at a time.

    Batches are of nearly equal size: the last one is padded with copies of the last row, whose results are dropped.
    """
    if batch_size >= length:
        return function(tree)
    batch_size = -(-length // -(-length // batch_size))
    starts = jnp.arange(0, length, batch_size)

    def at(start: Array) -> PyTree[Array]:
        rows = jnp.minimum(start + jnp.arange(batch_size), length - 1)
        return function(jax.tree.map(lambda leaf: leaf[rows], tree))

    results = jax.lax.map(at, starts)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:length], results)
