"""Labels as people give them: the exact head, its share fitted to annotators of other images, beside an ensemble.

Ten labels of a pair of images are drawn from the annotators of CIFAR-10H: a repeated image need not repeat its label.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.pitman_yor import calibrate, counts_log_prob

from ..configs.cifar_head import PeopleLabels
from ..inputs import Inputs
from ..record import Row
from .cifar_bank import about, batch_of, network_parameters, particles_of
from .cifar_head import Halved, field_head, log_softmax
from .replication_human import draw_labels, read_human
from .replication_scores import log_mean
from .scoring import TAU

# Sums over clusters that are held at a time.
_BATCH = 4096


@eqx.filter_jit
def _joint(logits: Array, counts: Array, alpha: Array) -> Array:
    def at(pair: tuple[Array, Array]) -> Array:
        return -counts_log_prob(*pair, alpha, TAU)

    return jax.lax.map(at, (logits, counts), batch_size=_BATCH)


def head_losses(
    logits: Float[np.ndarray, "images classes"], drawn: Float[np.ndarray, "pairs draws anchors classes"], alpha: float
) -> Float[np.ndarray, " pairs"]:
    """Return the exact joint loss of the labels drawn from each pair, a mean over draws."""
    pairs = logits.reshape(len(drawn), 1, 2, -1)
    flat = np.broadcast_to(pairs, drawn.shape).reshape(-1, drawn.shape[-1])
    counts = drawn.reshape(flat.shape).astype(np.int32)
    found = _joint(jnp.asarray(flat), jnp.asarray(counts), jnp.asarray(alpha))
    return np.asarray(found, np.float64).reshape(drawn.shape[:3]).sum(axis=2).mean(axis=1)


def particle_losses(
    log_p: Float[np.ndarray, "images particles classes"], drawn: Float[np.ndarray, "pairs draws anchors classes"]
) -> Float[np.ndarray, " pairs"]:
    """Return the joint loss of equally likely particles, a mean over draws."""
    pairs = log_p.reshape(len(drawn), 2, *log_p.shape[1:])
    return -log_mean(np.einsum("pamc,pdac->pdm", pairs, drawn, optimize=True), axis=-1).mean(axis=1)


def run(config: PeopleLabels, *, key: PRNGKeyArray, inputs: Inputs) -> list[Row]:
    """Return joint and marginal losses under labels of people, at what was fitted to labels of other images."""
    split_key, labels_key, head_key = named_keys(key, "split", "labels", "head")
    halved = Halved(config.halves, key=split_key)
    shares = read_human(inputs.require("data_dir", expected="CIFAR-10 with human_labels.npz"))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(labels_key)))
    drawn = {"tuning": draw_labels(shares[halved.tuning], TAU, rng), "test": draw_labels(shares[halved.test], TAU, rng)}
    truth, known = shares[halved.test], shares[halved.tuning].astype(np.float32)

    def rows(log_p: np.ndarray, joint: np.ndarray, **told: Any) -> list[Row]:
        losses = {"marginal": -np.sum(truth * log_p, axis=1)[None], "joint": joint[None]}
        return halved.rows(losses, (1,), exact=True, **told)

    found: list[Row] = []
    for name in config.networks.bases:
        parts = halved.parts(batch_of(name))
        field_key, fit_key = named_keys(head_key, f"{name} field", f"{name} fit")
        head = field_head(parts.tuning, 0.5, 0.3, key=field_key)
        fitted = calibrate(head, parts.tuning.x, known, tau=TAU, key=fit_key)
        temperature = float(fitted.temperature)
        logits = np.asarray(parts.test.x["logits"]) / np.float32(temperature)
        log_p = log_softmax(logits)
        told = {**about(name, "exact head"), "temperature": temperature}
        for alpha, is_fitted in [(float(fitted.alpha), True), *((alpha, False) for alpha in config.alphas)]:
            joint = head_losses(logits, drawn["test"], alpha)
            errors = {"alpha_error": float(fitted.alpha_error)} if is_fitted else {}
            found += rows(log_p, joint, **told, alpha=alpha, fitted=is_fitted, **errors)
        told = {**about(name, "network"), "temperature": temperature, "fitted": True}
        found += rows(log_p, particle_losses(log_p[:, None], drawn["test"]), **told)
    depth, _ = config.networks.sizes[0]
    parts = halved.parts(particles_of(config.networks.names(depth)[: config.ensemble_size]))
    tried = [
        (particle_losses(log_softmax(parts.tuning.x / temperature), drawn["tuning"]).mean(), temperature)
        for temperature in config.halves.temperatures[::2]
    ]
    log_p = log_softmax(parts.test.x / min(tried)[1])
    size = config.ensemble_size
    told = {"agent": "ensemble", "network": f"first_{size}", "size": size, "temperature": min(tried)[1], "fitted": True}
    told["parameters"] = size * network_parameters(depth)
    return found + rows(log_mean(log_p, axis=1), particle_losses(log_p, drawn["test"]), **told)
