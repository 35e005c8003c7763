"""How often targets fall into the intervals that an ENN predicts: calibration of a regression."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree, Shaped

from .._checks import check_level
from .._draws import Draws, check_result, map_batches, outputs_at
from .._enn import AbstractENN
from .._likelihoods import AbstractLikelihood, AbstractNumeric, check_numeric
from .._scores import check_data
from .._xla import sum_by_product
from ._estimate import Estimate


class Coverage(eqx.Module):
    """How often targets fell into the central intervals of several levels.

    Attributes:
        levels: the nominal probabilities.
        observed: the share of the targets within, one value per level; its standard error is over examples, and the
            targets of one example count as one.
    """

    levels: tuple[float, ...] = eqx.field(static=True)
    observed: Estimate

    def __str__(self) -> str:
        shares, errors = (100 * values for values in (self.observed.mean, self.observed.standard_error))
        lines = [
            f"{100 * level:g} % interval: {share:.1f} ± {error:.1f} % of the targets"
            for level, share, error in zip(self.levels, shares.tolist(), errors.tolist(), strict=True)
        ]
        return "\n".join(lines)


@eqx.filter_jit
def _probabilities(
    enn: AbstractENN,
    data: tuple[PyTree[Array], Float[Array, "batch targets"]],
    length: int,
    draws: Draws,
    likelihood: AbstractNumeric,
    batch_size: int,
) -> tuple[Float[Array, "batch targets"], Float[Array, "batch targets"]]:
    """Return the predictive probabilities that a target is below, and at most, the observed one."""

    def at(
        data: tuple[PyTree[Array], Float[Array, "batch targets"]],
    ) -> tuple[Float[Array, "batch targets"], Float[Array, "batch targets"]]:
        x, y = data
        embeddings = jax.vmap(enn.embed)(x)
        cdf = jax.vmap(jax.vmap(likelihood.cdf), in_axes=(0, None))

        def step(
            sums: tuple[Array, Array], zs: Shaped[Array, "samples ..."], valid: Bool[Array, " samples"]
        ) -> tuple[Array, Array]:
            outputs = outputs_at(enn, embeddings, zs)
            at_most = sum_by_product(valid, cdf(outputs, y))
            below = sum_by_product(valid, cdf(outputs, y - 1)) if likelihood.is_discrete else at_most
            return sums[0] + below, sums[1] + at_most

        zeros = jnp.zeros(y.shape)
        below, at_most = draws.fold(step, (zeros, zeros))
        return below / draws.num_samples, at_most / draws.num_samples

    return map_batches(at, data, length=length, batch_size=batch_size)


def coverage(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    likelihood: AbstractLikelihood,
    levels: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95),
) -> Coverage:
    """Return how often targets fall into the intervals of `predict.interval`, on data that were not trained on.

    A target is within the central interval of a level if its predictive probability is: no quantile is needed, and
    memory does not grow with the number of draws. For integers the intervals are at least as probable as their level.

    Args:
        enn: the ENN, of a regression.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        y: targets.
        draws: the indices to average over.
        likelihood: how an output becomes a distribution of the targets, noise included.
        levels: nominal probabilities.
    """
    levels = tuple(np.ravel(levels).tolist())
    if not levels:
        raise ValueError("`levels` must hold at least one probability; got none.")
    for level in levels:
        check_level("levels", level)
    numeric = check_numeric(likelihood)
    data = check_data(enn, x, y, draws, group_size=1, likelihood=numeric)
    targets = jnp.asarray(data.y, dtype=float)
    below, at_most = check_result(
        "probabilities",
        _probabilities(enn, (data.x, targets), data.length, data.draws, numeric, data.batch_size),
        data.draws,
    )
    tails = jnp.array([(1 - level) / 2 for level in levels])[:, None, None]
    within = (at_most[None] >= tails) & (below[None] < 1 - tails)
    shares = jnp.mean(within.astype(targets.dtype), axis=-1)
    return Coverage(levels, Estimate(shares, data.draws.num_samples, 1, data.draws.exact))
