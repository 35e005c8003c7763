"""Joint predictions: several inputs at once (Eq. 1 and 2)."""

import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree, Shaped

from .._checks import as_real_array
from .._counts import count_log_probs
from .._draws import Draws, LogSum, check_draws, check_result, outputs_at
from .._enn import AbstractENN
from .._examples import check_examples, check_targets
from .._likelihoods import CATEGORICAL, AbstractLikelihood, check_classes, target_log_probs

_MAX_TABLE = 2**20


@eqx.filter_jit
def _log_probs(
    enn: AbstractENN,
    x: PyTree[Array],
    y: Shaped[Array, "tau ..."],
    counts: Float[Array, "cases tau"],
    likelihood: AbstractLikelihood,
    draws: Draws,
) -> Float[Array, ""]:
    """Return the sum over cases of the log of the mean over indices of the product over their labels."""
    embeddings = jax.vmap(enn.embed)(x)
    log_p = count_log_probs(lambda zs: target_log_probs(likelihood, outputs_at(enn, embeddings, zs), y), counts, draws)
    return jnp.sum(log_p)


def _checked_log_probs(
    name: str,
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "tau ..."],
    draws: Draws,
    likelihood: AbstractLikelihood,
    cases: Callable[[int], Float[Array, "cases tau"]],
) -> Float[Array, ""]:
    """Return the log-probability of all `cases` of the labels together, after checking arguments and result."""
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    y = check_targets(likelihood, y, examples)
    return check_result(name, _log_probs(enn, examples.x, y, cases(examples.length), likelihood, draws), draws)


@eqx.filter_jit
def _joint_log_probs(enn: AbstractENN, x: PyTree[Array], shape: tuple[int, ...], draws: Draws) -> Float[Array, "..."]:
    """Return the log of the mean over indices of the outer product of the class probabilities."""
    embeddings = jax.vmap(enn.embed)(x)
    tau = len(shape)

    def step(sums: LogSum, zs: Shaped[Array, "samples ..."], valid: Array) -> LogSum:
        log_p = jax.nn.log_softmax(outputs_at(enn, embeddings, zs))
        # Label t varies along axis t: its log-probabilities get size one along the axes of the other labels.
        factors = [
            log_p[:, t].reshape(-1, *(size if t == s else 1 for s, size in enumerate(shape))) for t in range(tau)
        ]
        return sums.add(ft.reduce(jnp.add, factors), valid)

    return draws.fold(step, LogSum.zeros(shape)).log_mean(draws.num_samples)


@eqx.filter_jit
def _conditional_log_probs(
    enn: AbstractENN,
    x: PyTree[Array],
    y: Shaped[Array, "tau ..."],
    x_new: PyTree[Array],
    num_classes: int,
    draws: Draws,
) -> Float[Array, " classes"]:
    """Return the joint log-probabilities of the labels with each class of the new input, normalized over it."""
    embeddings, new = jax.vmap(enn.embed)(x), enn.embed(x_new)
    tau = y.shape[0]
    # The outcomes are the observed labels and the new classes; in each case all of the former and one of the latter.
    counts = jnp.concatenate([jnp.ones((num_classes, tau)), jnp.eye(num_classes)], axis=1)

    def log_p_at(zs: Shaped[Array, "samples ..."]) -> Float[Array, "samples outcomes"]:
        observed = target_log_probs(CATEGORICAL, outputs_at(enn, embeddings, zs), y)
        return jnp.concatenate([observed, jax.nn.log_softmax(enn.heads(new, zs))], axis=1)

    return jax.nn.log_softmax(count_log_probs(log_p_at, counts, draws))


def joint_log_prob(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "tau ..."],
    draws: Draws,
    *,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> Float[Array, ""]:
    r"""Return the joint log-probability of Eq. (2): $\log \int P_Z(dz) \prod_t \mathrm{softmax}(f(x_t, z))_{y_t}$.

    In total nats over the labels. It is the logarithm of an average of products, with one index for all inputs.

    Args:
        enn: the ENN.
        x: the inputs $x_{1:\tau}$, an array or a tree of arrays with a leading axis.
        y: the targets $y_{1:\tau}$.
        draws: the indices to average over.
        likelihood: how an output becomes a distribution of the target.
    """
    return _checked_log_probs("joint log-probability", enn, x, y, draws, likelihood, lambda tau: jnp.ones((1, tau)))


def independent_log_prob(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "tau ..."],
    draws: Draws,
    *,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> Float[Array, ""]:
    """Return the log-probability of Eq. (1): the labels as if independent, each with its marginal prediction.

    The arguments are those of `joint_log_prob`; the difference between the two measures the dependence between labels
    that the ENN predicts.
    """
    return _checked_log_probs("log-probability of independent labels", enn, x, y, draws, likelihood, jnp.eye)


def joint_log_probs(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
) -> Float[Array, "..."]:
    r"""Return the joint log-probabilities of all combinations of labels (Eq. 2): one axis of classes per input.

    Args:
        enn: the ENN, of a classification.
        x: the inputs $x_{1:\tau}$, an array or a tree of arrays with a leading axis; few, since the table has
            `num_classes ** tau` entries.
        draws: the indices to average over.
    """
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    check_classes(examples.num_outputs)
    entries = examples.num_outputs**examples.length
    if entries > _MAX_TABLE:
        raise ValueError(
            f"`x` must hold so few inputs that the table has at most {_MAX_TABLE} entries; "
            f"got {examples.length} inputs of {examples.num_outputs} classes."
        )
    table = _joint_log_probs(enn, examples.x, (examples.num_outputs,) * examples.length, draws)
    return check_result("joint log-probabilities", table, draws)


def conditional_log_probs(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "tau ..."],
    x_new: PyTree[ArrayLike],
    draws: Draws,
) -> Float[Array, " classes"]:
    r"""Return the log-probabilities of the classes at a new input, given the labels at others.

    $\hat P(y_{\tau + 1} \mid y_{1:\tau}) = \hat P(y_{1:\tau + 1}) / \hat P(y_{1:\tau})$ by Eq. (2), without training:
    indices that predicted the labels well count more.

    Args:
        enn: the ENN, of a classification.
        x: the inputs $x_{1:\tau}$, an array or a tree of arrays with a leading axis.
        y: their labels.
        x_new: the new input, one example without a batch axis.
        draws: the indices to average over.
    """
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    y = check_targets(CATEGORICAL, y, examples)
    new = check_examples(enn, "x_new", jax.tree.map(lambda leaf: as_real_array("x_new", leaf)[None], x_new))
    x_new = jax.tree.map(lambda leaf: leaf[0], new.x)
    result = _conditional_log_probs(enn, examples.x, y, x_new, examples.num_outputs, draws)
    return check_result("conditional log-probabilities", result, draws)
