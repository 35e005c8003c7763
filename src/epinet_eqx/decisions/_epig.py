"""How much the label of an input tells about the labels that will be asked for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree, Shaped

from .._draws import Draws, check_draws, check_result, map_batches, masked_sum, outputs_at
from .._enn import AbstractENN
from .._examples import check_examples

# So many entries of joint tables at a time stay within a few megabytes.
_MAX_ENTRIES = 2**20


@eqx.filter_jit
def _epig(
    enn: AbstractENN, x: PyTree[Array], targets: PyTree[Array], sizes: tuple[int, int, int], draws: Draws, batch: int
) -> Float[Array, " batch"]:
    """Return the mean mutual information with the targets, batch by batch and chunk by chunk."""
    length, num_targets, classes = sizes
    target_embeddings = jax.vmap(enn.embed)(targets)

    def at(x: PyTree[Array]) -> Float[Array, " batch"]:
        embeddings = jax.vmap(enn.embed)(x)
        size = jax.tree.leaves(x)[0].shape[0]

        def step(
            sums: tuple[Array, Array, Array], zs: Shaped[Array, "samples ..."], valid: Bool[Array, " samples"]
        ) -> tuple[Array, Array, Array]:
            p = jax.nn.softmax(outputs_at(enn, embeddings, zs))
            q = jax.nn.softmax(outputs_at(enn, target_embeddings, zs))
            counted = p * valid.astype(p.dtype)[:, None, None]
            joint = jnp.einsum("mbc,mtd->btcd", counted, q, precision=jax.lax.Precision.HIGHEST)
            return sums[0] + joint, sums[1] + masked_sum(valid, p), sums[2] + masked_sum(valid, q)

        start = (
            jnp.zeros((size, num_targets, classes, classes)),
            jnp.zeros((size, classes)),
            jnp.zeros((num_targets, classes)),
        )
        joint, p, q = (total / draws.num_samples for total in draws.fold(step, start))
        product = p[:, None, :, None] * q[None, :, None, :]
        possible = (joint > 0) & (product > 0)
        ratio = jnp.where(possible, joint, 1.0) / jnp.where(possible, product, 1.0)
        information = jnp.sum(jsp.xlogy(joint, ratio), axis=(2, 3))
        # Never negative, up to rounding.
        return jnp.mean(jnp.maximum(information, 0.0), axis=1)

    return map_batches(at, x, length=length, batch_size=batch)


def epig_scores(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    targets: PyTree[ArrayLike],
    draws: Draws,
) -> Float[Array, " batch"]:
    r"""Return the expected predictive information gain: $I(y; y_*)$ in nats, averaged over target inputs $x_*$.

    The mutual information of the two labels under the joint prediction of Eq. (2). What the label tells about the index
    but about no label at the targets does not count (Bickford Smith et al., 2023).

    Args:
        enn: the ENN, of a classification.
        x: the pool, an array or a tree of arrays with a leading batch axis.
        targets: inputs like those that predictions will be asked for, in the form of `x`; a hundred will do.
        draws: the indices to average over.
    """
    draws = check_draws(enn, draws)
    examples, others = check_examples(enn, "x", x), check_examples(enn, "targets", targets)
    classes = examples.num_outputs
    batch_size = draws.batch_size
    if batch_size is None:
        batch_size = min(1024, max(1, _MAX_ENTRIES // (others.length * classes**2)))
    sizes = (examples.length, others.length, classes)
    return check_result("information gains", _epig(enn, examples.x, others.x, sizes, draws, batch_size), draws)
