"""A temperature for joint predictions that leaves marginal predictions as good as they are (Appendix G)."""

import jax.numpy as jnp
from jaxtyping import ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from .._enn import AbstractENN, Tempered
from ..predict._likelihood import CATEGORICAL, AbstractLikelihood
from ._tune import Tuned, tune


def tune_temperature(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    *,
    temperatures: Float[ArrayLike, " candidates"],
    tau: int = 10,
    max_marginal_loss_increase: float = 0.0,
    likelihood: AbstractLikelihood = CATEGORICAL,
    num_samples: int | None,
    chunk_size: int = 16,
    batch_size: int | None = None,
    key: PRNGKeyArray | None,
) -> Tuned:
    """Return the temperature with the lowest joint log-loss among those that do not degrade the marginal log-loss.

    Temperature 1, the ENN as it is, is candidate 0: what the marginal log-losses of the others are compared with, and
    the answer if none of them will do. `Tempered(enn, tuned.best)` is the result as an ENN.

    Args:
        enn: the ENN.
        x: held-out inputs, not those of the test, with a leading batch axis of even length.
        y: their labels.
        temperatures: the temperatures to try besides 1.
        tau: number of labels of the joint log-loss.
        max_marginal_loss_increase: by how many nats the marginal log-loss may exceed that of temperature 1.
        likelihood: how an output becomes a distribution of the label.
        num_samples: number of indices M; None averages exactly over the finite support of the index.
        chunk_size: how many indices are computed at a time.
        batch_size: how many examples are computed at a time; chosen to fit if not given.
        key: random key of the indices; may be None with `num_samples=None`.
    """
    candidates = jnp.asarray(temperatures, dtype=float)
    if candidates.ndim != 1:
        raise ValueError(f"`temperatures` must be a vector; got shape {candidates.shape}.")
    return tune(
        lambda temperature: Tempered(enn, temperature),
        jnp.concatenate([jnp.ones(1), candidates]),
        x,
        y,
        tau=tau,
        max_marginal_loss_increase=max_marginal_loss_increase,
        likelihood=likelihood,
        num_samples=num_samples,
        chunk_size=chunk_size,
        batch_size=batch_size,
        key=key,
    )
