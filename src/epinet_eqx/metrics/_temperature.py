"""A temperature for joint predictions that leaves marginal predictions as good as they are (Appendix G)."""

import jax.numpy as jnp
from jaxtyping import ArrayLike, Float, PyTree, Shaped

from .._draws import Draws
from .._enn import AbstractENN
from .._likelihoods import CATEGORICAL, AbstractLikelihood
from ..combinators import Tempered
from ._tune import Tuned, tune


def tune_temperature(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    temperatures: Float[ArrayLike, " candidates"],
    tau: int = 10,
    max_marginal_loss_increase: float = 0.0,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> Tuned:
    """Return the temperature with the lowest joint log-loss among those that do not degrade the marginal log-loss.

    Temperature 1, the ENN as it is, is candidate 0: what the marginal log-losses of the others are compared with, and
    the answer if none of them will do. `Tempered(enn, tuned.best)` is the result as an ENN.

    Args:
        enn: the ENN.
        x: held-out inputs, not those of the test, with a leading batch axis of even length.
        y: their labels.
        draws: the indices to average over.
        temperatures: the temperatures to try besides 1.
        tau: number of labels of the joint log-loss.
        max_marginal_loss_increase: by how many nats the marginal log-loss may exceed that of temperature 1.
        likelihood: how an output becomes a distribution of the label.
    """
    candidates = jnp.asarray(temperatures, dtype=float)
    if candidates.ndim != 1:
        raise ValueError(f"`temperatures` must be a vector; got shape {candidates.shape}.")
    return tune(
        lambda temperature: Tempered(enn, temperature),
        jnp.concatenate([jnp.ones(1), candidates]),
        x,
        y,
        draws,
        tau=tau,
        max_marginal_loss_increase=max_marginal_loss_increase,
        likelihood=likelihood,
    )
