"""How much the label of an input is worth: scores of a pool, each input by itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree, Shaped

from .._checks import check_positive
from .._draws import Draws, LogSum, check_draws, check_result, choose_batch_size, map_batches, outputs_at
from .._enn import AbstractENN
from .._examples import check_examples, check_targets
from .._likelihoods import CATEGORICAL
from ..combinators import ClassProbs
from ..predict import marginal_log_probs, moments, uncertainty


def variance_scores(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
    *,
    regression: bool = False,
) -> Float[Array, " batch"]:
    r"""Return the variance over $z \sim P_Z$ of the class probabilities at each input, summed over the classes.

    Args:
        enn: the ENN.
        x: the pool, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
        regression: whether the outputs are those of a regression, whose own variance is then the score.
    """
    found = moments(enn if regression else ClassProbs(enn), x, draws)
    return jnp.sum(found.variance, axis=-1)


def entropy_scores(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
) -> Float[Array, " batch"]:
    """Return the entropy of the marginal prediction at each input, noise included; arguments as in `bald_scores`."""
    return uncertainty(enn, x, draws).total


def margin_scores(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
) -> Float[Array, " batch"]:
    """Return how close the two most probable classes are: minus the difference of their marginal probabilities.

    The arguments are those of `bald_scores`.
    """
    log_probs = marginal_log_probs(enn, x, draws)
    if log_probs.shape[1] < 2:
        raise ValueError(f"`enn` must have at least two classes for a margin; got {log_probs.shape[1]}.")
    top = jax.lax.top_k(jnp.exp(log_probs), 2)[0]
    return top[:, 1] - top[:, 0]


def bald_scores(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
) -> Float[Array, " batch"]:
    r"""Return what the label at each input tells about the index: the mutual information $I(y; z)$ in nats (BALD).

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
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
    *,
    y: Int[ArrayLike, " batch"] | None = None,
    tau: int = 10,
) -> Float[Array, " batch"]:
    r"""Return the joint log-loss of seeing the label of each input $\tau$ times (Eq. 2), in total nats.

    $-\log \int P_Z(dz) \, \mathrm{softmax}(f(x, z))_y^\tau$: the logarithm of a mean, not the mean of logarithms. It is
    a priority for examples that are labeled already. Without labels it is the expectation over a label drawn from the
    marginal prediction; noise ranks high then, and `bald_scores` is what tells noise from ignorance.

    Args:
        enn: the ENN, of a classification.
        x: the pool, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
        y: the labels, where they are known.
        tau: how often each label is seen; 1 gives the marginal log-loss, or the entropy without labels.
    """
    check_positive("tau", tau)
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    labels = None if y is None else check_targets(CATEGORICAL, y, examples)
    batch_size = choose_batch_size(draws, examples.num_outputs)
    once, repeated = _repeated_losses(enn, examples.x, examples.length, examples.num_outputs, tau, draws, batch_size)
    if labels is not None:
        return check_result("joint log-losses", -jnp.take_along_axis(repeated, labels[:, None], axis=1)[:, 0], draws)
    # A class of probability zero contributes nothing.
    losses = jnp.where(once > -jnp.inf, jnp.exp(once) * repeated, 0.0)
    return check_result("joint log-losses", -jnp.sum(losses, axis=1), draws)
