"""The uncertainty baselines of image protocols in memory (Section 6, Appendix G.2)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.random as jr

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.baselines import MIMO, SNGP, Heteroscedastic, MIMOLoss, SpectrallyBounded, mimo_batch, with_posterior
from epinet_eqx.bayes import Deterministic, dropout_mlp
from epinet_eqx.combinators import Marginalized, OnTrunk
from epinet_eqx.networks import MLP, headless
from epinet_eqx.training import fit

from .image_memory import MemoryBackend, kept, loss_of, settings_of


def _dropout(backend: MemoryBackend, key: Any) -> AbstractENN:
    """Return a network with dropout; one mask per index."""
    init_key, fit_key = named_keys(key, "init", "fit")
    protocol = backend.seed.protocol
    size, rate = protocol.sizes[0], protocol.baselines.dropout_rate

    def build() -> AbstractENN:
        return dropout_mlp(backend.num_pixels, backend.num_classes, (size, size), rate=rate, key=init_key)

    return backend.fit(f"dropout {size} {rate}", build, protocol.training, key=fit_key)


def _mimo(backend: MemoryBackend, key: Any) -> AbstractENN:
    """Return a network of two inputs and two outputs, trained on pairs that are drawn anew in every epoch."""
    init_key, pair_key, fit_key = named_keys(key, "init", "pairs", "fit")
    protocol, data = backend.seed.protocol, backend.data
    size, training = protocol.sizes[0], protocol.training
    network = MLP(2 * backend.num_pixels, 2 * backend.num_classes, (size, size), feature_layers=(), key=init_key)
    if backend.planner is not None:
        loss, pairs = MIMOLoss(loss_of(training)), mimo_batch(data.train, key=pair_key)
        backend.plan("mimo", Deterministic(network), training, loss=loss, data=pairs)
        return MIMO(network)

    def train() -> Any:
        settings = settings_of(training, backend.num_train)
        settings["num_steps"] //= training.epochs
        state: Any = Deterministic(network)
        pairs = jax.jit(lambda epoch: mimo_batch(data.train, key=jr.fold_in(pair_key, epoch)))
        for epoch in range(training.epochs):
            epoch_key = jr.fold_in(fit_key, epoch)
            state = fit(state, pairs(epoch), MIMOLoss(loss_of(training)), **settings, key=epoch_key).state
        return state.model.network

    return MIMO(kept(backend.seed.place("mimo", training, size), network, train))


def _sngp(backend: MemoryBackend, key: Any) -> AbstractENN:
    """Return a Gaussian process on the features of a network whose layers are bounded."""
    trunk_key, head_key, fit_key = named_keys(key, "trunk", "head", "fit")
    protocol = backend.seed.protocol
    size, num_features = protocol.sizes[0], protocol.baselines.random_features

    def build() -> AbstractENN:
        trunk = headless(backend.make_network(size, trunk_key))
        head = SNGP(trunk.feature_dim, backend.num_classes, num_features=num_features, key=head_key)
        return OnTrunk(SpectrallyBounded(trunk), head)

    trained = backend.fit(f"sngp {size} {num_features}", build, protocol.training, key=fit_key)
    return trained if backend.planner is not None else with_posterior(trained, backend.data.train.x)


def _het(backend: MemoryBackend, key: Any) -> AbstractENN:
    """Return a network with noise in its logits, trained on the log loss of its average prediction."""
    trunk_key, head_key, fit_key = named_keys(key, "trunk", "head", "fit")
    protocol = backend.seed.protocol
    size, recipe = protocol.sizes[0], protocol.baselines

    def build() -> AbstractENN:
        trunk = headless(backend.make_network(size, trunk_key))
        head = Heteroscedastic(trunk.feature_dim, backend.num_classes, rank=recipe.het_rank, key=head_key)
        return Marginalized(OnTrunk(trunk, head), recipe.het_samples)

    name = f"het {size} {recipe.het_rank} {recipe.het_samples}"
    return backend.fit(name, build, protocol.training, key=fit_key).enn


BASELINES: dict[str, Callable[[MemoryBackend, Any], AbstractENN]] = {
    "dropout": _dropout,
    "mimo": _mimo,
    "sngp": _sngp,
    "het": _het,
}
