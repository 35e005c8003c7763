"""How much of an uncertainty could be resolved by data (Section 3)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree, Shaped

from .._draws import Draws, check_draws, check_result, choose_batch_size, map_batches, masked_sum, outputs_at
from .._enn import AbstractENN
from .._examples import check_examples


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
    probs = jnp.exp(log_probs)
    finite = jnp.where(probs > 0, log_probs, jnp.zeros_like(log_probs))
    return -jnp.sum(probs * finite, axis=-1)


@eqx.filter_jit
def _uncertainty(
    enn: AbstractENN, x: PyTree[Array], length: int, num_classes: int, draws: Draws, batch_size: int
) -> Uncertainty:
    """Return the decomposition, batch by batch and chunk by chunk."""

    def at(x: PyTree[Array]) -> Uncertainty:
        embeddings = jax.vmap(enn.embed)(x)
        size = jax.tree.leaves(x)[0].shape[0]

        def step(
            sums: tuple[Array, Array], zs: Shaped[Array, "samples ..."], valid: Bool[Array, " samples"]
        ) -> tuple[Array, Array]:
            log_p = jax.nn.log_softmax(outputs_at(enn, embeddings, zs))
            return sums[0] + masked_sum(valid, jnp.exp(log_p)), sums[1] + masked_sum(valid, entropy(log_p))

        probs, entropies = draws.fold(step, (jnp.zeros((size, num_classes)), jnp.zeros(size)))
        aleatoric = entropies / draws.num_samples
        mixture = jnp.sum(jax.scipy.special.entr(probs / draws.num_samples), axis=-1)
        # Jensen's inequality holds up to rounding.
        return Uncertainty(aleatoric, jnp.maximum(mixture - aleatoric, 0.0))

    return map_batches(at, x, length=length, batch_size=batch_size)


def uncertainty(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
) -> Uncertainty:
    r"""Return the entropy of the marginal prediction at each input, decomposed.

    The aleatoric part is the mean over the index of the entropy given the index: what remains if $z$ is known. The
    epistemic part is the rest, the mutual information $I(y; z)$ between label and index.

    Args:
        enn: the ENN, of a classification.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
    """
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    batch_size = choose_batch_size(draws, examples.num_outputs)
    result = _uncertainty(enn, examples.x, examples.length, examples.num_outputs, draws, batch_size)
    return check_result("uncertainty", result, draws)
