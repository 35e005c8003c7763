"""The uncertainty baselines on ResNets, trained on a mesh (Section 6, Appendix G.2)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.baselines import MIMO, SNGP, Heteroscedastic, MIMOLoss, SpectrallyBoundedStateful, mimo_batch
from epinet_eqx.bayes import MCDropout
from epinet_eqx.combinators import Marginalized, OnTrunk
from epinet_eqx.losses import AbstractLoss, Batch
from epinet_eqx.networks import ImageConv, headless, with_statistics
from epinet_eqx.training import AbstractObjective, StatefulObjective, TrunkObjective

from ..configs.images import Training
from .image_scale import ScaleBackend
from .image_scale_recipes import loss_of
from .image_sources import Prepared

_GRAM_BATCH = 500


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


def _settings(backend: ScaleBackend) -> tuple[int, Training, str]:
    """Return the size, the training and the family of the baselines."""
    protocol = backend.seed.protocol
    recipe = protocol.baselines
    return protocol.sizes[0], recipe.training or protocol.training, recipe.networks


def _dropout(backend: ScaleBackend, key: PRNGKeyArray) -> AbstractENN:
    """Return a network with dropout of channels; one mask per index."""
    size, training, family = _settings(backend)
    recipe = backend.seed.protocol.baselines
    network, state = backend.train(
        "dropout",
        lambda key: backend.make(size, backend.num_classes, family=family, dropout=recipe.dropout_rate, key=key),
        StatefulObjective(loss_of(training)),
        training,
        place=[size, recipe],
        key=key,
    )
    return MCDropout(with_statistics(network, state).masked)


def _mimo(backend: ScaleBackend, key: PRNGKeyArray) -> AbstractENN:
    """Return a network of two images and two outputs."""
    size, training, family = _settings(backend)
    recipe = backend.seed.protocol.baselines
    channels = 2 * backend.image_shape[0]
    network, state = backend.train(
        "mimo",
        lambda key: backend.make(size, 2 * backend.num_classes, family=family, in_channels=channels, key=key),
        MIMOObjective(loss_of(training), recipe.mimo_repeats, backend.mesh),
        training,
        place=[size, recipe],
        key=key,
    )
    return MIMO(with_statistics(network, state))


def _blocks(network: Any) -> list[Array]:
    """Return the kernels of a ResNet but that of its stem, which the reference does not bound."""
    nodes = jax.tree.leaves(network.groups, is_leaf=lambda node: isinstance(node, ImageConv))
    return [node.weight for node in nodes if isinstance(node, ImageConv)]


def _trained_head(
    backend: ScaleBackend, name: str, make_head: Callable[[int, PRNGKeyArray], AbstractENN], *, bounded: bool, key: Any
) -> tuple[Any, AbstractENN]:
    """Return a trunk with its statistics fixed, and the ENN on its features that was trained with it."""
    size, training, family = _settings(backend)

    def make(key: PRNGKeyArray) -> tuple[Any, Any]:
        trunk_key, head_key = named_keys(key, "trunk", "head")
        trunk, state = backend.make(size, backend.num_classes, family=family, key=trunk_key)
        trunk = headless(trunk)
        if bounded:
            trunk = SpectrallyBoundedStateful(trunk, where=_blocks)
        return (trunk, make_head(trunk.feature_dim, head_key)), state

    (trunk, enn), state = backend.train(
        name,
        make,
        TrunkObjective(loss_of(training), num_index_samples=1),
        training,
        place=[size, backend.seed.protocol.baselines],
        key=key,
    )
    return with_statistics(trunk, state), enn


def _sngp(backend: ScaleBackend, key: PRNGKeyArray) -> AbstractENN:
    """Return a Gaussian process on the features of a network whose layers are bounded."""
    num_features = backend.seed.protocol.baselines.random_features

    def head(feature_dim: int, key: PRNGKeyArray) -> SNGP:
        return SNGP(feature_dim, backend.num_classes, num_features=num_features, key=key)

    trunk, enn = _trained_head(backend, "sngp", head, bounded=True, key=key)
    trained: Any = enn
    if backend.planner is not None:
        return OnTrunk(trunk, trained)
    shape = (num_features, num_features)
    gram = backend.kept_array("sngp gram", shape, lambda: _gram(backend, OnTrunk(trunk, trained)))
    return OnTrunk(trunk, trained.with_gram(gram))


def _gram(backend: ScaleBackend, enn: OnTrunk) -> Array:
    """Return the sum of products of random features over the training data, one pass over it."""
    head: Any = enn.enn
    source = Prepared(backend.shares.train, backend.images.decode, backend.images.normalization)
    total = jnp.zeros((head.weight.shape[0], head.weight.shape[0]))

    @eqx.filter_jit
    def add(total: Array, enn: OnTrunk, x: Array, counted: Array) -> Array:
        inner: Any = enn.enn
        random = jax.vmap(inner.random_features.value)(jax.vmap(enn.features)(x)) * counted[:, None]
        return total + random.T @ random

    with backend.loader(source, _GRAM_BATCH) as loader:
        for batch in loader:
            count = batch.y.shape[0]
            # A smaller last batch is filled up, so that one program does for all.
            filled = jnp.concatenate([batch.x, jnp.repeat(batch.x[:1], _GRAM_BATCH - count, axis=0)])
            total = add(total, enn, filled, (jnp.arange(_GRAM_BATCH) < count).astype(total.dtype))
    return total


def _het(backend: ScaleBackend, key: PRNGKeyArray) -> AbstractENN:
    """Return a network with noise in its logits, trained on the log loss of its average prediction."""
    recipe = backend.seed.protocol.baselines

    def head(feature_dim: int, key: PRNGKeyArray) -> Marginalized:
        inner = Heteroscedastic(feature_dim, backend.num_classes, rank=recipe.het_rank, key=key)
        return Marginalized(inner, recipe.het_samples)

    trunk, enn = _trained_head(backend, "het", head, bounded=False, key=key)
    averaged: Any = enn
    return OnTrunk(trunk, averaged.enn)


BASELINES: dict[str, Callable[[ScaleBackend, PRNGKeyArray], AbstractENN]] = {
    "dropout": _dropout,
    "mimo": _mimo,
    "sngp": _sngp,
    "het": _het,
}
