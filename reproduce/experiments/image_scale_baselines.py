"""What uncertainty baselines on ResNets need when they are trained on a mesh (Appendix G.2)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from epinet_eqx import named_keys
from epinet_eqx.baselines import MIMOLoss, mimo_batch
from epinet_eqx.combinators import OnTrunk
from epinet_eqx.losses import AbstractLoss, Batch
from epinet_eqx.networks import ImageConv
from epinet_eqx.training import AbstractObjective, StatefulObjective


class MIMOObjective(AbstractObjective):
    """The loss of a network of two inputs, on pairs that each step draws from its batch."""

    inner: StatefulObjective
    num_repeats: int = eqx.field(static=True)
    mesh: Mesh = eqx.field(static=True)

    def __init__(self, loss: AbstractLoss, num_repeats: int, mesh: Mesh):
        """Initialize with the loss of one member, the number of pairs per example, and the mesh that has the batch."""
        self.inner = StatefulObjective(MIMOLoss(loss))
        self.num_repeats = num_repeats
        self.mesh = mesh

    def __call__(
        self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], tuple[PyTree, dict[str, Array]]]:
        """Return the mean loss and the new statistics."""
        pair_key, inner_key = named_keys(key, "pairs", "inner")
        pairs = mimo_batch(batch, num_repeats=self.num_repeats, key=pair_key)
        # Drawn from all of the batch, pairs belong to no device: without a word each device would have all of them.
        pairs = jax.lax.with_sharding_constraint(pairs, NamedSharding(self.mesh, PartitionSpec("data")))
        return self.inner(model, model_state, pairs, key=inner_key)

    def evaluate(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> dict[str, Array]:
        """Return metrics of held-out examples, which both members see."""
        twice = Batch(jnp.concatenate([batch.x, batch.x], axis=1), jnp.stack([batch.y, batch.y], axis=1), batch.i)
        return self.inner.evaluate(model, model_state, twice, key=key)


def kernels_of_blocks(network: Any) -> list[Array]:
    """Return the kernels of a ResNet but that of its stem, which the reference does not bound."""
    nodes = jax.tree.leaves(network.groups, is_leaf=lambda node: isinstance(node, ImageConv))
    return [node.weight for node in nodes if isinstance(node, ImageConv)]


@eqx.filter_jit
def gram_of(enn: OnTrunk, x: Float[Array, "batch ..."]) -> Float[Array, "random random"]:
    """Return the sum of products of the random features of a batch, for an `SNGP` on a trunk."""
    head: Any = enn.enn
    return head.gram(jax.vmap(enn.features)(x))
