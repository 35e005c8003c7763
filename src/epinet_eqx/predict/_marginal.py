"""Predictions of one input at a time: class probabilities, moments and uncertainty (Section 3)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree, Shaped

from .._checks import as_real_array, is_traced, refuse_nan
from .._draws import Draws, LogSum, check_draws, check_result, choose_batch_size, map_batches, outputs_at
from .._enn import AbstractENN
from .._examples import Examples, check_examples
from .._likelihoods import CATEGORICAL, AbstractLikelihood, AbstractOutcomes, check_classes
from .._xla import sum_by_product

# Averages over the draws, given embedded inputs and the shape of their outputs at one index.
_Average = Callable[..., PyTree[Array]]


@eqx.filter_jit
def _in_batches(average: _Average, enn: AbstractENN, examples: Examples, draws: Draws, *options: Any) -> PyTree[Array]:
    """Return the average at all inputs, computed in batches."""

    def at(x: PyTree[Array]) -> PyTree[Array]:
        shape = (jax.tree.leaves(x)[0].shape[0], examples.num_outputs)
        return average(enn, jax.vmap(enn.embed)(x), draws, shape, *options)

    batch_size = choose_batch_size(draws, examples.num_outputs)
    return map_batches(at, examples.x, length=examples.length, batch_size=batch_size)


def _evaluate(name: str, average: _Average, enn: AbstractENN, x: PyTree[ArrayLike], draws: Draws, *options: Any) -> Any:
    """Return the average at all inputs; check the arguments, and the result for NaN."""
    draws = check_draws(enn, draws)
    result = _in_batches(average, enn, check_examples(enn, "x", x), draws, *options)
    return check_result(name, result, draws)


def _marginal_log_probs(
    enn: AbstractENN, embeddings: PyTree[Array], draws: Draws, shape: tuple[int, int]
) -> Float[Array, "batch classes"]:
    """Return the log of the mean class probabilities, chunk by chunk."""
    check_classes(shape[1])
    sums = draws.fold(
        lambda sums, zs, valid: sums.add(jax.nn.log_softmax(outputs_at(enn, embeddings, zs)), valid),
        LogSum.zeros(shape),
    )
    return sums.log_mean(draws.num_samples)


def marginal_log_probs(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
) -> Float[Array, "batch classes"]:
    r"""Return the log-probabilities of the classes at each input: $\log \int P_Z(dz) \, \mathrm{softmax}(f(x, z))$.

    Args:
        enn: the ENN, of a classification.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
    """
    return _evaluate("marginal log-probabilities", _marginal_log_probs, enn, x, draws)


class Moments(eqx.Module):
    """Mean and variance of the outputs over the index; the variance is the epistemic part of a regression's."""

    mean: Float[Array, "batch classes"]
    variance: Float[Array, "batch classes"]


def _moments(enn: AbstractENN, embeddings: PyTree[Array], draws: Draws, shape: tuple[int, int]) -> Moments:
    """Return the moments, chunk by chunk."""

    def step(
        carry: tuple[Array, Array, Array], zs: Shaped[Array, "samples ..."], valid: Bool[Array, " samples"]
    ) -> tuple[Array, Array, Array]:
        count, mean, squares = carry
        outputs = outputs_at(enn, embeddings, zs)
        added = jnp.sum(valid.astype(outputs.dtype))
        chunk_mean = sum_by_product(valid, outputs) / added
        # Sums of squared deviations are merged, never differences of large squares.
        change = chunk_mean - mean
        squares = squares + sum_by_product(valid, jnp.square(outputs - chunk_mean[None]))
        squares = squares + jnp.square(change) * (count * added / (count + added))
        return count + added, mean + change * (added / (count + added)), squares

    count, mean, squares = draws.fold(step, (jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape)))
    return Moments(mean, squares / count)


def moments(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
) -> Moments:
    r"""Return mean and variance over $z \sim P_Z$ of the outputs at each input.

    The variance divides by the number of indices. For a `Gaussian` likelihood, the variance of a target is this one
    plus `scale ** 2`.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
    """
    return _evaluate("moments", _moments, enn, x, draws)


class Uncertainty(eqx.Module):
    """The entropy of a prediction in nats, in two parts."""

    aleatoric: Float[Array, " batch"]
    epistemic: Float[Array, " batch"]

    @property
    def total(self) -> Float[Array, " batch"]:
        """The sum of the two."""
        return self.aleatoric + self.epistemic


def entropy(log_probs: Float[Array, "*batch classes"]) -> Float[Array, "*batch"]:
    """Return the entropy in nats of class probabilities given by their logarithms.

    A class of probability zero contributes nothing, also where its logarithm is minus infinity.
    """
    if not is_traced(log_probs):
        log_probs = as_real_array("log_probs", log_probs)
        if log_probs.ndim == 0:
            raise ValueError("`log_probs` must have an axis of classes; got one number.")
        refuse_nan("log_probs", log_probs)
    probs = jnp.exp(log_probs)
    finite = jnp.where(probs > 0, log_probs, jnp.zeros_like(log_probs))
    return -jnp.sum(probs * finite, axis=-1)


def _uncertainty(
    enn: AbstractENN,
    embeddings: PyTree[Array],
    draws: Draws,
    shape: tuple[int, int],
    likelihood: AbstractOutcomes,
) -> Uncertainty:
    """Return the decomposition, chunk by chunk."""
    log_probs = jax.vmap(jax.vmap(likelihood.outcome_log_probs))

    def step(
        sums: tuple[Array, Array], zs: Shaped[Array, "samples ..."], valid: Bool[Array, " samples"]
    ) -> tuple[Array, Array]:
        log_p = log_probs(outputs_at(enn, embeddings, zs))
        return sums[0] + sum_by_product(valid, jnp.exp(log_p)), sums[1] + sum_by_product(valid, entropy(log_p))

    table = jax.eval_shape(lambda: log_probs(jnp.zeros((1, *shape)))).shape[1:]
    probs, entropies = draws.fold(step, (jnp.zeros(table), jnp.zeros(table[:-1])))
    aleatoric = jnp.sum(entropies / draws.num_samples, axis=-1)
    mixture = jnp.sum(jax.scipy.special.entr(probs / draws.num_samples), axis=(-2, -1))
    # Jensen's inequality holds up to rounding.
    return Uncertainty(aleatoric, jnp.maximum(mixture - aleatoric, 0.0))


def uncertainty(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
    *,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> Uncertainty:
    r"""Return the entropy of the marginal prediction at each input, decomposed.

    The aleatoric part is the mean over the index of the entropy given the index: what remains if $z$ is known. The
    epistemic part is the rest, the mutual information $I(y; z)$ between label and index. For several labels at once
    (`Bernoulli`), each is decomposed by itself and the parts are summed.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
        likelihood: how an output becomes a distribution of the target, with finitely many outcomes; for a regression,
            `moments` gives mean and variance.
    """
    if not isinstance(likelihood, AbstractOutcomes):
        raise ValueError(
            f"`likelihood` must have finitely many outcomes for an entropy; got {type(likelihood).__name__}. "
            "`predict.interval` gives intervals of its targets, `predict.moments` the variance over the index."
        )
    return _evaluate("uncertainty", _uncertainty, enn, x, draws, likelihood)
