"""How far knowledge reaches: the length scale with the best joint predictions of different, near inputs."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._checks import as_real_array, check_finite
from .._counts import count_log_probs
from .._draws import Draws, check_draws, check_result, map_batches, outputs_at
from ..metrics import Estimate, near_pairs
from ._head import PitmanYor

# Pairs of near inputs that a length scale needs.
_MIN_PAIRS = 20
_BATCH_SIZE = 64


@eqx.filter_jit
def _pair_losses(
    enn: PitmanYor, x: PyTree[Array], counts: Float[Array, "pairs two classes"], draws: Draws
) -> Float[Array, " pairs"]:
    """Return the joint log-loss of all labels of each pair of inputs, by the sampled head."""

    def at(part: tuple[PyTree[Array], Array]) -> Float[Array, " pairs"]:
        inputs, counts = part
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), inputs)
        embeddings = jax.vmap(enn.embed)(flat)
        cases = counts.reshape(counts.shape[0], 1, -1)

        def log_p_at(zs: Array) -> Float[Array, "samples pairs outcomes"]:
            return jax.nn.log_softmax(outputs_at(enn, embeddings, zs)).reshape(zs.shape[0], cases.shape[0], -1)

        return -count_log_probs(log_p_at, cases, draws)[:, 0]

    return map_batches(at, (x, counts), length=counts.shape[0], batch_size=_BATCH_SIZE)


def check_length_scales(values: Sequence[float]) -> Float[Array, " candidates"]:
    """Return candidates, which must be positive."""
    candidates = check_finite("length_scales", as_real_array("length_scales", values).astype(float))
    if candidates.ndim != 1 or candidates.size == 0 or bool(jnp.any(candidates <= 0)):
        raise ValueError(f"`length_scales` must be a vector of positive numbers; got {candidates}.")
    return candidates


def choose_length_scale(
    enn: PitmanYor,
    x: PyTree[Array],
    standardized: Float[Array, "batch features"],
    counts: Float[Array, "batch classes"],
    independent: Float[Array, " batch"],
    draws: Draws,
    length_scales: Float[Array, " candidates"],
) -> tuple[Float[Array, ""], Estimate]:
    """Return the length scale with the best joint predictions of near inputs, and their gain over independence.

    Args:
        enn: the head with all other parameters fitted.
        x: held-out inputs.
        standardized: their standardized features, which define distances.
        counts: how often each class occurs among their labels.
        independent: exact joint log-loss of the labels of each input.
        draws: the indices to average over.
        length_scales: the candidates.
    """
    draws = check_draws(enn, draws)
    pairs = near_pairs(np.asarray(standardized))
    if len(pairs) < _MIN_PAIRS:
        raise ValueError(
            f"`x` must hold at least {_MIN_PAIRS} pairs of inputs that are each other's nearest, to choose a length "
            f"scale by; got {len(pairs)}."
        )
    own = jax.tree.map(lambda leaf: leaf[pairs], x)
    gains = []
    for value in length_scales:
        losses = _pair_losses(enn.with_parameters(length_scale=value), own, counts[pairs], draws)
        gains.append(jnp.sum(independent[pairs], axis=1) - check_result("joint log-losses of pairs", losses, draws))
    best = int(np.argmax([float(jnp.mean(gain)) for gain in gains]))
    return length_scales[best], Estimate(gains[best], draws.num_samples, 2, draws.exact)
