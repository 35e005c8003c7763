"""Marginal predictions: one input at a time (Section 3)."""

import equinox as eqx
import jax
from jaxtyping import Array, ArrayLike, Float, PyTree

from .._draws import Draws, LogSum, check_draws, check_result, choose_batch_size, map_batches, outputs_at
from .._enn import AbstractENN
from .._examples import check_examples


@eqx.filter_jit
def _marginal_log_probs(
    enn: AbstractENN, x: PyTree[Array], length: int, num_classes: int, draws: Draws, batch_size: int
) -> Float[Array, "batch classes"]:
    """Return the log of the mean class probabilities, batch by batch and chunk by chunk."""

    def at(x: PyTree[Array]) -> Float[Array, "batch classes"]:
        embeddings = jax.vmap(enn.embed)(x)
        sums = LogSum.zeros((jax.tree.leaves(x)[0].shape[0], num_classes))
        sums = draws.fold(
            lambda sums, zs, valid: sums.add(jax.nn.log_softmax(outputs_at(enn, embeddings, zs)), valid), sums
        )
        return sums.log_mean(draws.num_samples)

    return map_batches(at, x, length=length, batch_size=batch_size)


def marginal_log_probs(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
) -> Float[Array, "batch classes"]:
    r"""Return the log-probabilities of the classes at each input: $\log \int P_Z(dz) \, \mathrm{softmax}(f(x, z))$.

    Args:
        enn: the ENN, of a classification.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
    """
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    batch_size = choose_batch_size(draws, examples.num_outputs)
    result = _marginal_log_probs(enn, examples.x, examples.length, examples.num_outputs, draws, batch_size)
    return check_result("marginal log-probabilities", result, draws)
