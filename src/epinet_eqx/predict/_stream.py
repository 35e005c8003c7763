"""Averages over the index in chunks, so that memory does not grow with the number of samples."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from .._enn import AbstractENN
from ..indices import AbstractIndex

_Carry = TypeVar("_Carry")


class Draws(eqx.Module):
    """The indices that a prediction averages over: the first of a key's sequence, or a finite support, each once.

    They do not depend on the input: whatever is predicted with the same draws shares its indices.
    """

    index: AbstractIndex
    key: PRNGKeyArray | None
    num_samples: int = eqx.field(static=True)
    exact: bool = eqx.field(static=True)
    chunk_size: int = eqx.field(static=True)

    def take(self, count: int, start: int | Shaped[Array, ""]) -> Shaped[Array, "samples ..."]:
        """Return `count` indices from number `start` on; beyond the end of a support its last one is repeated."""
        if self.exact:
            support = self.index.support()  # pyright: ignore[reportAttributeAccessIssue]
            return support[jnp.minimum(start + jnp.arange(count), self.num_samples - 1)]
        assert self.key is not None
        return self.index.sample_many(count, key=self.key, start=start)

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


def masked_sum(valid: Bool[Array, " samples"], values: Float[Array, "samples *shape"]) -> Float[Array, "*shape"]:
    """Return the sum of the valid entries, as a matrix product: on a CPU much faster than XLA's own reduction."""
    return jnp.tensordot(valid.astype(values.dtype), values, axes=1, precision=jax.lax.Precision.HIGHEST)


def _max_over_samples(values: Float[Array, "samples *shape"]) -> Float[Array, "*shape"]:
    """Return the largest entry along the leading axis, by halves: on a CPU much faster than XLA's own reduction."""
    while (count := values.shape[0]) > 1:
        half = -(-count // 2)
        # The halves of an odd number overlap, which does not change the maximum.
        values = jnp.maximum(values[:half], values[count - half :])
    return values[0]


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
        top = jnp.maximum(self.top, _max_over_samples(jax.lax.stop_gradient(terms)))
        shift = _finite_or_zero(top)
        total = self.total * jnp.exp(self.top - shift) + masked_sum(valid, jnp.exp(terms - shift[None]))
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

    The last batch is filled up with copies of the last row, and what they give is cut off.
    """
    if batch_size >= length:
        return function(tree)
    starts = jnp.arange(0, length, batch_size)

    def at(start: Array) -> PyTree[Array]:
        rows = jnp.minimum(start + jnp.arange(batch_size), length - 1)
        return function(jax.tree.map(lambda leaf: leaf[rows], tree))

    results = jax.lax.map(at, starts)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:length], results)
