"""The uncertainty baselines of the image protocols, on networks of the smallest size (Section 6, Appendix G.2)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.random as jr

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.baselines import (
    MIMO,
    SNGP,
    Heteroscedastic,
    Marginalized,
    MIMOLoss,
    OnTrunk,
    SpectrallyBounded,
    headless,
    mimo_batch,
    with_posterior,
)
from epinet_eqx.bayes import Deterministic, dropout_mlp
from epinet_eqx.networks import MLP
from epinet_eqx.training import fit

from .image_lab import Lab, loss_of, settings_of

_DROPOUT_RATE = 0.1
_RANDOM_FEATURES = 256
_HET_RANK = 15
_HET_SAMPLES = 10


def _dropout(lab: Lab, key: Any) -> AbstractENN:
    """Return a network with dropout; one mask per index."""
    init_key, fit_key = named_keys(key, "init", "fit")
    size = lab.protocol.sizes[0]
    enn = dropout_mlp(lab.num_pixels, lab.data.num_classes, (size, size), rate=_DROPOUT_RATE, key=init_key)
    return lab.fit(enn, lab.protocol.training, num_index_samples=1, key=fit_key)


def _mimo(lab: Lab, key: Any) -> AbstractENN:
    """Return a network of two inputs and two outputs, trained on pairs that are drawn anew in every epoch."""
    init_key, pair_key, fit_key = named_keys(key, "init", "pairs", "fit")
    size, training = lab.protocol.sizes[0], lab.protocol.training
    network = MLP(2 * lab.num_pixels, 2 * lab.data.num_classes, (size, size), feature_layers=(), key=init_key)
    settings = settings_of(training, lab.protocol.num_train)
    settings["num_steps"] //= training.epochs
    state: Any = Deterministic(network)
    pairs = jax.jit(lambda epoch: mimo_batch(lab.data.train, key=jr.fold_in(pair_key, epoch)))
    for epoch in range(training.epochs):
        state = fit(state, pairs(epoch), MIMOLoss(loss_of(training)), **settings, key=jr.fold_in(fit_key, epoch)).state
    return MIMO(state.enn.network)


def _sngp(lab: Lab, key: Any) -> AbstractENN:
    """Return a Gaussian process on the features of a network whose layers are bounded."""
    trunk_key, head_key, fit_key = named_keys(key, "trunk", "head", "fit")
    trunk = headless(lab.make_network(lab.protocol.sizes[0], trunk_key))
    head = SNGP(trunk.feature_dim, lab.data.num_classes, num_features=_RANDOM_FEATURES, key=head_key)
    enn = OnTrunk(SpectrallyBounded(trunk), head)
    trained = lab.fit(enn, lab.protocol.training, num_index_samples=1, key=fit_key)
    return with_posterior(trained, lab.data.train.x)


def _het(lab: Lab, key: Any) -> AbstractENN:
    """Return a network with noise in its logits, trained on the log loss of its average prediction."""
    trunk_key, head_key, fit_key = named_keys(key, "trunk", "head", "fit")
    trunk = headless(lab.make_network(lab.protocol.sizes[0], trunk_key))
    head = Heteroscedastic(trunk.feature_dim, lab.data.num_classes, rank=_HET_RANK, key=head_key)
    averaged = Marginalized(OnTrunk(trunk, head), _HET_SAMPLES)
    return lab.fit(averaged, lab.protocol.training, num_index_samples=1, key=fit_key).enn


BASELINES: dict[str, Callable[[Lab, Any], AbstractENN]] = {
    "dropout": _dropout,
    "mimo": _mimo,
    "sngp": _sngp,
    "het": _het,
}


def train_baseline(lab: Lab, name: str) -> AbstractENN:
    """Return a baseline, trained on the data of this seed."""
    return BASELINES[name](lab, lab.key_of(name))
