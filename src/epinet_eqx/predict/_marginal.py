"""Marginal predictions: one input at a time (Section 3)."""

import equinox as eqx
import jax
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from .._enn import AbstractENN
from ._inputs import check_examples, check_result, choose_batch_size, make_draws
from ._stream import Draws, LogSum, map_batches, outputs_at


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
    *,
    num_samples: int | None,
    chunk_size: int = 16,
    batch_size: int | None = None,
    key: PRNGKeyArray | None,
) -> Float[Array, "batch classes"]:
    r"""Return the log-probabilities of the classes at each input: $\log \int P_Z(dz) \, \mathrm{softmax}(f(x, z))$.

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
    result = _marginal_log_probs(enn, examples.x, examples.length, examples.num_outputs, draws, batch_size)
    return check_result("marginal log-probabilities", result, draws)
