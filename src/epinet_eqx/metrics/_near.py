"""Joint predictions of *different* inputs, which the dyadic loss does not measure."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float, Int, PyTree, Shaped

from .._checks import refuse_mask
from .._draws import Draws
from .._enn import AbstractENN
from .._likelihoods import CATEGORICAL, AbstractLikelihood
from .._scores import check_data, checked_scores
from ._estimate import Estimate

_BLOCK = 1024


def joint_gain(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> Estimate:
    r"""Return the gain of the joint prediction of two inputs over the product of its marginals, for each pair.

    $\ln \hat P(y_1, y_2) - \ln \hat P(y_1) - \ln \hat P(y_2)$ of consecutive pairs, in nats; larger is better. It is 0
    for any predictor that treats different inputs as independent, even if its predictions at a single input are
    coherent: unlike the dyadic loss, it does not reward agreement among repeated labels. Choose related inputs, such as
    those of `near_pairs`.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis of even length; consecutive ones are pairs.
        y: targets.
        draws: the indices to average over.
        likelihood: how an output becomes a distribution of the target.
    """
    data = check_data(enn, x, y, draws, group_size=2, likelihood=likelihood)
    (scores,) = checked_scores(enn, data, jnp.ones((1, 2)))
    gain = scores.joint[:, 0] - jnp.sum(scores.marginal, axis=1)
    return Estimate(gain, data.draws.num_samples, 2, data.draws.exact)


def near_pairs(features: Float[ArrayLike, "batch features"]) -> Int[np.ndarray, "pairs 2"]:
    """Return the pairs of inputs that are each other's nearest neighbor: none is in two of them.

    Distances are computed on the host in double precision.

    Args:
        features: one row per input; standardize them if their scales differ.
    """
    refuse_mask("features", features)
    values = np.asarray(features)
    if not any(jnp.issubdtype(values.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise ValueError(f"`features` must hold real numbers; got {values.dtype}.")
    values = values.astype(np.float64)
    if values.ndim != 2 or values.shape[0] < 2:
        raise ValueError(f"`features` must be a matrix with a row for each of at least 2 inputs; got {values.shape}.")
    if wrong := int(np.sum(~np.isfinite(values))):
        raise ValueError(f"`features` must be finite; got {wrong} non-finite of {values.size} values.")
    # A large common offset would cancel in the differences of squares below.
    values = values - values.mean(axis=0)
    # By a power of two, which rounds nothing; squares of numbers near the largest would overflow.
    values = np.ldexp(values, -int(np.frexp(np.max(np.abs(values)))[1]))
    squares = np.sum(np.square(values), axis=1)
    nearest = np.empty(len(values), dtype=int)
    for start in range(0, len(values), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(values)))
        distances = squares - 2 * values[rows] @ values.T
        distances[rows - start, rows] = np.inf
        nearest[rows] = np.argmin(distances, axis=1)
    own = np.arange(len(values))
    is_first = (nearest[nearest] == own) & (own < nearest)
    return np.stack([own[is_first], nearest[is_first]], axis=1)
