"""What an epinet is compared with on the same features: no index, many heads, and other posteriors."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.baselines import SNGP, Heteroscedastic, with_posterior
from epinet_eqx.bayes import Deterministic, last_layer_laplace
from epinet_eqx.combinators import Marginalized
from epinet_eqx.data import stored_base
from epinet_eqx.indices import AbstractIndex, GaussianIndex
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import MLP, FunctionNetwork
from epinet_eqx.training import EpochBatches, fit, fit_many

from ..configs.replication import Recipe
from .heads import on_stored
from .replication_bank import LAST
from .replication_lab import Lab
from .replication_rows import Agent, Bench, sampled, stored

_NUM_CLASSES = 10
_EPOCHS = 9
_BATCH_SIZE = 100
_OPTIMIZER = optax.adam(1e-3)
_L2 = 1e-5
# As many parameters as the learnable part of an epinet with 20 indices and 50 hidden units, 14,450.
_HEAD_WIDTH = 193
_NUM_HEADS = 22
_HET_SAMPLES = 10
_SNGP_FEATURES = 512
# Swept on the tuning part, as the prior scale of an epinet is.
PRIOR_PRECISIONS = (0.1, 1.0, 10.0, 100.0)
SNGP_SCALES = (1.0, 3.0, 10.0, 30.0)
DROPOUT_RATES = (0.05, 0.1, 0.2, 0.4)

Candidates = list[tuple[float, Agent]]


def _settings(data: Batch) -> dict[str, Any]:
    """Return how every head is trained."""
    return {
        "num_steps": max(1, _EPOCHS * len(data.y) // _BATCH_SIZE),
        "batch_size": min(_BATCH_SIZE, len(data.y)),
        "sampling": EpochBatches,
        "optimizer": _OPTIMIZER,
        "progress": False,
    }


def _only_features(data: Batch) -> Batch:
    """Return examples whose input is the feature vector."""
    return Batch(data.x["features"], data.y, data.i)


@eqx.filter_jit
def _outputs(enn: Deterministic, x: PyTree[Array]) -> Float[Array, "images classes"]:
    """Return the logits of a network without an index."""
    return jax.vmap(enn.network)(x)


def _head(data: Batch, x: dict[str, np.ndarray], key: PRNGKeyArray) -> Agent:
    """Return a deterministic head of the epinet's capacity."""
    init_key, fit_key = named_keys(key, "init", "fit")
    enn = Deterministic(on_stored(MLP(LAST, _NUM_CLASSES, (_HEAD_WIDTH,), feature_layers=(), key=init_key)))
    trained = fit(enn, data, CrossEntropy(l2=_L2), **_settings(data), num_index_samples=1, key=fit_key).enn
    assert isinstance(trained, Deterministic)
    logits = np.asarray(_outputs(trained, x))
    return stored(logits[:, None])


def _heads(data: Batch, x: dict[str, np.ndarray], key: PRNGKeyArray) -> Agent:
    """Return an ensemble of linear layers in place of the last one, each from its own start and order of examples."""
    init_key, fit_key = named_keys(key, "init", "fit")
    seen = _only_features(data)

    def make(key: PRNGKeyArray) -> Deterministic:
        return Deterministic(MLP(LAST, _NUM_CLASSES, (), feature_layers=(), key=key))

    enns = eqx.filter_vmap(make)(jr.split(init_key, _NUM_HEADS))
    trained = fit_many(enns, seen, CrossEntropy(l2=_L2), **_settings(data), num_index_samples=1, key=fit_key).enn
    logits = eqx.filter_vmap(_outputs, in_axes=(eqx.if_array(0), None))(trained, x["features"])
    return stored(np.asarray(logits).transpose(1, 0, 2))


def _laplace(bench: Bench, data: Batch, x: dict[str, np.ndarray], count: int) -> Candidates:
    """Return last-layer Laplace at several prior precisions."""
    network = FunctionNetwork(stored_base, None)
    seen = jax.tree.map(jnp.asarray, data.x)
    return [
        (precision, bench.agent(last_layer_laplace(network, seen, prior_precision=precision), x, count))
        for precision in PRIOR_PRECISIONS
    ]


def _het(data: Batch, key: PRNGKeyArray) -> AbstractENN:
    """Return a heteroscedastic head, trained on the loss of its average prediction."""
    init_key, fit_key = named_keys(key, "init", "fit")
    averaged = Marginalized(Heteroscedastic(LAST, _NUM_CLASSES, key=init_key), _HET_SAMPLES)
    trained = fit(
        averaged, _only_features(data), CrossEntropy(l2=_L2), **_settings(data), num_index_samples=1, key=fit_key
    )
    assert isinstance(trained.enn, Marginalized)
    return trained.enn.enn


def _sngp(bench: Bench, data: Batch, x: dict[str, np.ndarray], count: int, key: PRNGKeyArray) -> Candidates:
    """Return a Gaussian process on the features, at several scales of its posterior."""
    init_key, fit_key = named_keys(key, "init", "fit")
    seen = _only_features(data)
    enn = SNGP(LAST, _NUM_CLASSES, num_features=_SNGP_FEATURES, feature_scale=0.1, key=init_key)
    trained = fit(enn, seen, CrossEntropy(l2=_L2), **_settings(data), num_index_samples=1, key=fit_key).enn
    assert isinstance(trained, SNGP)
    posterior = with_posterior(trained, jnp.asarray(seen.x))
    return [(scale, bench.agent(posterior.with_scale(scale), x["features"], count)) for scale in SNGP_SCALES]


def _dropout(lab: Lab, network: str, count: int) -> Candidates:
    """Return the base with masks on the features that its last layer sees, at several rates; nothing is trained."""
    piece = lab.piece(network, "test")
    features = piece["features"][:, -LAST:]
    # The logits are linear in the features: the weights come out of the numbers.
    extended = np.concatenate([features, np.ones((len(features), 1), np.float32)], axis=1).astype(np.float64)
    weights = np.linalg.lstsq(extended, piece["logits"].astype(np.float64), rcond=None)[0].astype(np.float32)
    found = []
    for rate in DROPOUT_RATES:
        kept = jr.bernoulli(lab.key_of("dropout masks"), 1 - rate, (count, LAST))
        masks = jnp.where(kept, 1 / (1 - rate), 0.0)
        # The masks are given; the index only says of what shape they are.
        enn = Masked(weights=jnp.asarray(weights), index=GaussianIndex(LAST))
        found.append((rate, sampled(enn, masks, features)))
    return found


class Masked(AbstractENN):
    """A last layer behind masks, one per index and the same for all images."""

    weights: Float[Array, "inputs classes"]
    index: AbstractIndex

    def embed(self, x: Float[Array, " features"]) -> Float[Array, " features"]:
        """Return the features."""
        return x

    def heads(
        self, embedding: Float[Array, " features"], zs: Float[Array, "samples features"]
    ) -> Float[Array, "samples classes"]:
        """Return the logits behind these masks."""
        return (zs * embedding[None]) @ self.weights[:-1] + self.weights[-1][None]


def controls(bench: Bench, network: str, recipe: Recipe) -> dict[str, Callable[[], Candidates]]:
    """Return the controls on one base by name, each a list of candidates among which the tuning part decides.

    Args:
        bench: the judge.
        network: the base.
        recipe: the epinet's recipe, whose training images these are trained on.
    """
    lab, count = bench.lab, bench.study.num_samples
    # Plain features for all of these: none has a scale that standardizing would change, but for their optimizer.
    plain = replace(recipe, conv_scale=0.0, standardized=True, unit=False, features="last", tempered_base=False)
    key = lab.key_of(f"{network} controls")
    head_key, heads_key, het_key, sngp_key = named_keys(key, "head", "heads", "het", "sngp")

    def data() -> Batch:
        return lab.training_data(network, plain)

    def x() -> dict[str, np.ndarray]:
        return lab.inputs_of(network, "test", plain)

    return {
        "deterministic head": lambda: [(0.0, _head(data(), x(), head_key))],
        "linear heads": lambda: [(float(_NUM_HEADS), _heads(data(), x(), heads_key))],
        "last-layer Laplace": lambda: _laplace(bench, data(), x(), count),
        "heteroscedastic head": lambda: [(0.0, bench.agent(_het(data(), het_key), x()["features"], count))],
        "SNGP head": lambda: _sngp(bench, data(), x(), count, sngp_key),
        "dropout on features": lambda: _dropout(lab, network, count),
    }
