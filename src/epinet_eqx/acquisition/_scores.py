"""Acquisition scores: the value of the label of each input of a pool, one input at a time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree, Shaped

from .._counts import check_num_labels
from .._draws import Draws, LogSum, check_draws, check_result, choose_batch_size, map_batches, outputs_at
from .._enn import AbstractENN, Indices
from .._examples import check_examples, check_targets
from .._likelihoods import CATEGORICAL, AbstractLikelihood, check_classes
from .._xla import sum_by_product
from ..combinators import AbstractWrapper
from ..predict import marginal_log_probs, moments, uncertainty


class _Expected(AbstractWrapper):
    """An ENN whose outputs are expected targets."""

    enn: AbstractENN
    likelihood: AbstractLikelihood

    def __init__(self, enn: AbstractENN, likelihood: AbstractLikelihood):
        """Initialize with the ENN and the likelihood of its outputs."""
        self.enn = enn
        self.likelihood = likelihood

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding of the ENN."""
        return self.enn.embed(x)

    def heads(self, embedding: PyTree[Array], zs: Indices) -> Float[Array, "samples targets"]:
        """Return the expected targets at many indices."""
        return jax.vmap(self.likelihood.mean)(self.enn.heads(embedding, zs))


def variance_scores(
    enn: AbstractENN, x: PyTree[ArrayLike], draws: Draws, *, likelihood: AbstractLikelihood = CATEGORICAL
) -> Float[Array, " batch"]:
    r"""Return the variance over $z \sim P_Z$ of the expected target at each input, summed over the outputs.

    The expected target is the class probabilities of a classification and the output itself of a regression.

    Args:
        enn: the ENN.
        x: the pool, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
        likelihood: how an output becomes a distribution of the target.
    """
    found = moments(_Expected(enn, likelihood), x, draws)
    return jnp.sum(found.variance, axis=-1)


def entropy_scores(enn: AbstractENN, x: PyTree[ArrayLike], draws: Draws) -> Float[Array, " batch"]:
    """Return the entropy of the marginal prediction at each input, noise included; arguments as in `bald_scores`."""
    return uncertainty(enn, x, draws).total


def margin_scores(enn: AbstractENN, x: PyTree[ArrayLike], draws: Draws) -> Float[Array, " batch"]:
    """Return how close the two most probable classes are: minus the difference of their marginal probabilities.

    The arguments are those of `bald_scores`.
    """
    log_probs = marginal_log_probs(enn, x, draws)
    if log_probs.shape[1] < 2:
        raise ValueError(f"`enn` must have at least two classes for a margin; got {log_probs.shape[1]}.")
    top = jax.lax.top_k(jnp.exp(log_probs), 2)[0]
    return top[:, 1] - top[:, 0]


def bald_scores(enn: AbstractENN, x: PyTree[ArrayLike], draws: Draws) -> Float[Array, " batch"]:
    r"""Return the mutual information $I(y; z)$ of the label and the index at each input, in nats (BALD).

    Indices and pool are streamed in chunks: beside the pool itself and its scores, memory grows with neither. The
    score of an input depends on the draws and the input only, so a larger pool can be scored in parts.

    Args:
        enn: the ENN, of a classification.
        x: the pool, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
    """
    return uncertainty(enn, x, draws).epistemic


@eqx.filter_jit
def _repeated_losses(
    enn: AbstractENN, x: PyTree[Array], length: int, num_classes: int, tau: int, draws: Draws, batch_size: int
) -> tuple[Float[Array, "batch classes"], Float[Array, "batch classes"]]:
    """Return the marginal log-probability of each class, and the joint one of seeing it `tau` times."""

    def at(x: PyTree[Array]) -> tuple[Float[Array, "batch classes"], Float[Array, "batch classes"]]:
        embeddings = jax.vmap(enn.embed)(x)
        empty = LogSum.zeros((jax.tree.leaves(x)[0].shape[0], num_classes))

        def step(
            sums: tuple[LogSum, LogSum], zs: Shaped[Array, "samples ..."], valid: Bool[Array, " samples"]
        ) -> tuple[LogSum, LogSum]:
            log_p = jax.nn.log_softmax(outputs_at(enn, embeddings, zs))
            return sums[0].add(log_p, valid), sums[1].add(tau * log_p, valid)

        once, repeated = draws.fold(step, (empty, empty))
        return once.log_mean(draws.num_samples), repeated.log_mean(draws.num_samples)

    return map_batches(at, x, length=length, batch_size=batch_size)


def joint_loss_scores(
    enn: AbstractENN, x: PyTree[ArrayLike], draws: Draws, *, y: Int[ArrayLike, " batch"] | None = None, tau: int = 10
) -> Float[Array, " batch"]:
    r"""Return the joint log-loss of seeing the label of each input $\tau$ times (Eq. 2), in total nats.

    $-\log \int P_Z(dz) \, \mathrm{softmax}(f(x, z))_y^\tau$: the logarithm of a mean, not the mean of logarithms. It is
    a priority for examples that are labeled already. Without labels it is the expectation over a label drawn from the
    marginal prediction; noise ranks high then, and `bald_scores` distinguishes noise from ignorance.

    Args:
        enn: the ENN, of a classification.
        x: the pool, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
        y: the labels, if known.
        tau: number of repetitions of each label; 1 gives the marginal log-loss, or the entropy without labels.
    """
    check_num_labels("tau", tau)
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    labels = None if y is None else check_targets(CATEGORICAL, y, examples)
    check_classes(examples.num_outputs)
    batch_size = choose_batch_size(draws, examples.num_outputs)
    once, repeated = _repeated_losses(enn, examples.x, examples.length, examples.num_outputs, tau, draws, batch_size)
    if labels is not None:
        return check_result("joint log-losses", -jnp.take_along_axis(repeated, labels[:, None], axis=1)[:, 0], draws)
    # A class of probability zero contributes nothing.
    losses = jnp.where(once > -jnp.inf, jnp.exp(once) * repeated, 0.0)
    return check_result("joint log-losses", -jnp.sum(losses, axis=1), draws)


# Joint tables are computed in chunks of this many entries, a few megabytes.
_MAX_ENTRIES = 2**20


@eqx.filter_jit
def _epig(
    enn: AbstractENN, x: PyTree[Array], targets: PyTree[Array], sizes: tuple[int, int, int], draws: Draws, batch: int
) -> Float[Array, " batch"]:
    """Return the mean mutual information with the targets, batch by batch and chunk by chunk."""
    length, num_targets, classes = sizes
    target_embeddings = jax.vmap(enn.embed)(targets)

    def at(x: PyTree[Array]) -> Float[Array, " batch"]:
        embeddings = jax.vmap(enn.embed)(x)
        size = jax.tree.leaves(x)[0].shape[0]

        def step(
            sums: tuple[Array, Array, Array], zs: Shaped[Array, "samples ..."], valid: Bool[Array, " samples"]
        ) -> tuple[Array, Array, Array]:
            p = jax.nn.softmax(outputs_at(enn, embeddings, zs))
            q = jax.nn.softmax(outputs_at(enn, target_embeddings, zs))
            counted = p * valid.astype(p.dtype)[:, None, None]
            joint = jnp.einsum("mbc,mtd->btcd", counted, q, precision=jax.lax.Precision.HIGHEST)
            return sums[0] + joint, sums[1] + sum_by_product(valid, p), sums[2] + sum_by_product(valid, q)

        start = (
            jnp.zeros((size, num_targets, classes, classes)),
            jnp.zeros((size, classes)),
            jnp.zeros((num_targets, classes)),
        )
        joint, p, q = (total / draws.num_samples for total in draws.fold(step, start))
        product = p[:, None, :, None] * q[None, :, None, :]
        possible = (joint > 0) & (product > 0)
        ratio = jnp.where(possible, joint, 1.0) / jnp.where(possible, product, 1.0)
        information = jnp.sum(jsp.xlogy(joint, ratio), axis=(2, 3))
        # Never negative, up to rounding.
        return jnp.mean(jnp.maximum(information, 0.0), axis=1)

    return map_batches(at, x, length=length, batch_size=batch)


def epig_scores(
    enn: AbstractENN, x: PyTree[ArrayLike], targets: PyTree[ArrayLike], draws: Draws
) -> Float[Array, " batch"]:
    r"""Return the expected predictive information gain: $I(y; y_*)$ in nats, averaged over target inputs $x_*$.

    The mutual information of the two labels under the joint prediction of Eq. (2). What the label tells about the index
    but about no label at the targets does not count (Bickford Smith et al., 2023).

    Args:
        enn: the ENN, of a classification.
        x: the pool, an array or a tree of arrays with a leading batch axis.
        targets: inputs distributed like those to be predicted, in the form of `x`; a hundred suffice.
        draws: the indices to average over.
    """
    draws = check_draws(enn, draws)
    examples, others = check_examples(enn, "x", x), check_examples(enn, "targets", targets)
    classes = examples.num_outputs
    check_classes(classes)
    batch_size = draws.batch_size
    if batch_size is None:
        batch_size = min(1024, max(1, _MAX_ENTRIES // (others.length * classes**2)))
    sizes = (examples.length, others.length, classes)
    return check_result("information gains", _epig(enn, examples.x, others.x, sizes, draws, batch_size), draws)
