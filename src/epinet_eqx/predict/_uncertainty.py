"""How much of an uncertainty could be resolved by data (Section 3)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, PyTree, Shaped

from .._enn import AbstractENN
from ._inputs import check_examples, check_result, choose_batch_size, make_draws
from ._stream import Draws, map_batches, masked_sum, outputs_at


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
    *,
    num_samples: int | None,
    chunk_size: int = 16,
    batch_size: int | None = None,
    key: PRNGKeyArray | None,
) -> Uncertainty:
    r"""Return the entropy of the marginal prediction at each input, decomposed.

    The aleatoric part is the mean over the index of the entropy given the index: what remains if $z$ is known. The
    epistemic part is the rest, the mutual information $I(y; z)$ between label and index.

    Args:
        enn: the ENN, of a classification.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        num_samples: number of indices; None averages exactly over the finite support of the index.
        chunk_size: how many indices are computed at a time.
        batch_size: how many inputs are computed at a time; chosen to fit if not given.
        key: random key of the indices, the same ones for all inputs; may be None with `num_samples=None`.
    """
    draws = make_draws(enn.index, num_samples, chunk_size=chunk_size, key=key)
    examples = check_examples(enn, "x", x)
    batch_size = choose_batch_size(batch_size, draws, examples.num_outputs)
    result = _uncertainty(enn, examples.x, examples.length, examples.num_outputs, draws, batch_size)
    return check_result("uncertainty", result, draws)
