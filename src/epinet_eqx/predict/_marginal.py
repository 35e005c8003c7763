"""Predictions of one input at a time: class probabilities, moments and uncertainty (Section 3)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree, Shaped

from .._checks import refuse_nan
from .._draws import Draws, LogSum, check_draws, check_result, choose_batch_size, map_batches, outputs_at
from .._enn import AbstractENN
from .._examples import check_examples
from .._likelihoods import CATEGORICAL, AbstractLikelihood, AbstractOutcomes, check_classes
from .._xla import sum_by_product


@eqx.filter_jit
def _marginal_log_probs(
    enn: AbstractENN, x: PyTree[Array], length: int, num_classes: int, draws: Draws, batch_size: int
) -> Float[Array, "batch classes"]:
    """Return the log of the mean class probabilities, batch by batch and chunk by chunk."""

    def at(x: PyTree[Array]) -> Float[Array, "batch classes"]:
        embeddings = jax.vmap(enn.embed)(x)
        sums = LogSum.zeros((jax.tree.leaves(x)[0].shape[0], num_classes))
        sums = draws.fold(
            lambda sums, zs, valid: sums.add(jax.nn.log_softmax(outputs_at(enn, embeddings, zs)), valid), sums
        )
        return sums.log_mean(draws.num_samples)

    return map_batches(at, x, length=length, batch_size=batch_size)


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
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    check_classes(examples.num_outputs)
    batch_size = choose_batch_size(draws, examples.num_outputs)
    result = _marginal_log_probs(enn, examples.x, examples.length, examples.num_outputs, draws, batch_size)
    return check_result("marginal log-probabilities", result, draws)


class Moments(eqx.Module):
    """Mean and variance of the outputs over the index; the variance is the epistemic part of a regression's."""

    mean: Float[Array, "batch classes"]
    variance: Float[Array, "batch classes"]


@eqx.filter_jit
def _moments(
    enn: AbstractENN, x: PyTree[Array], length: int, num_outputs: int, draws: Draws, batch_size: int
) -> Moments:
    """Return the moments, batch by batch and chunk by chunk."""

    def at(x: PyTree[Array]) -> Moments:
        embeddings = jax.vmap(enn.embed)(x)
        zeros = jnp.zeros((jax.tree.leaves(x)[0].shape[0], num_outputs))

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

        count, mean, squares = draws.fold(step, (jnp.zeros(()), zeros, zeros))
        return Moments(mean, squares / count)

    return map_batches(at, x, length=length, batch_size=batch_size)


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
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    batch_size = choose_batch_size(draws, examples.num_outputs)
    result = _moments(enn, examples.x, examples.length, examples.num_outputs, draws, batch_size)
    return check_result("moments", result, draws)


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
    refuse_nan("log_probs", log_probs)
    probs = jnp.exp(log_probs)
    finite = jnp.where(probs > 0, log_probs, jnp.zeros_like(log_probs))
    return -jnp.sum(probs * finite, axis=-1)


@eqx.filter_jit
def _uncertainty(
    enn: AbstractENN, x: PyTree[Array], length: int, draws: Draws, likelihood: AbstractOutcomes, batch_size: int
) -> Uncertainty:
    """Return the decomposition, batch by batch and chunk by chunk."""

    def at(x: PyTree[Array]) -> Uncertainty:
        embeddings = jax.vmap(enn.embed)(x)
        log_probs = jax.vmap(jax.vmap(likelihood.outcome_log_probs))

        def step(
            sums: tuple[Array, Array], zs: Shaped[Array, "samples ..."], valid: Bool[Array, " samples"]
        ) -> tuple[Array, Array]:
            log_p = log_probs(outputs_at(enn, embeddings, zs))
            return sums[0] + sum_by_product(valid, jnp.exp(log_p)), sums[1] + sum_by_product(valid, entropy(log_p))

        shape = jax.eval_shape(lambda: log_probs(outputs_at(enn, embeddings, draws.take(1, 0)))).shape[1:]
        probs, entropies = draws.fold(step, (jnp.zeros(shape), jnp.zeros(shape[:-1])))
        aleatoric = jnp.sum(entropies / draws.num_samples, axis=-1)
        mixture = jnp.sum(jax.scipy.special.entr(probs / draws.num_samples), axis=(-2, -1))
        # Jensen's inequality holds up to rounding.
        return Uncertainty(aleatoric, jnp.maximum(mixture - aleatoric, 0.0))

    return map_batches(at, x, length=length, batch_size=batch_size)


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
    draws = check_draws(enn, draws)
    if not isinstance(likelihood, AbstractOutcomes):
        raise ValueError(
            f"`likelihood` must have finitely many outcomes for an entropy; got {type(likelihood).__name__}. "
            "`predict.interval` gives intervals of its targets, `predict.moments` the variance over the index."
        )
    examples = check_examples(enn, "x", x)
    batch_size = choose_batch_size(draws, examples.num_outputs)
    result = _uncertainty(enn, examples.x, examples.length, draws, likelihood, batch_size)
    return check_result("uncertainty", result, draws)
