"""The Pitman-Yor head on images that are rotated, corrupted or augmented anew, beside an ensemble.

The head on one network, on the ensemble's mean prediction, and the ensemble as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from epinet_eqx import AbstractENN, Draws, named_keys
from epinet_eqx.losses import Batch
from epinet_eqx.metrics import joint_log_loss, log_losses
from epinet_eqx.pitman_yor import logits_log_losses

from ..configs.cifar_head import ShiftedHead
from ..configs.replication import Piece
from ..inputs import Inputs
from ..record import Row
from .banked import block_rows
from .cifar_bank import about, batch_of, network_parameters, particles_of
from .cifar_head import best_marginal, field_head, log_loss, log_softmax
from .replication_bank import LAST, features_of
from .replication_images import shifts
from .replication_scores import log_mean
from .scoring import TAU, StoredParticles, choose_temperature

Losses = dict[str, Float[np.ndarray, "1 values"]]


class Seen(NamedTuple):
    """What all networks say of some images, each divided by its temperature, and the last features of each network."""

    networks: Float[np.ndarray, "images networks classes"]
    particles: Float[np.ndarray, "images networks classes"]
    features: Float[np.ndarray, "networks images features"]
    y: Int[np.ndarray, " images"]

    def at(self, positions: slice) -> "Seen":
        """Return some of the images."""
        return Seen(self.networks[positions], self.particles[positions], self.features[:, positions], self.y[positions])

    def mean(self) -> Float[np.ndarray, "images classes"]:
        """Return the logarithm of the ensemble's mean prediction."""
        return log_mean(log_softmax(self.particles), axis=1)


def _look(
    config: ShiftedHead,
    names: Sequence[str],
    images: str,
    count: int,
    cooling: Sequence[float],
    cold: float,
    inputs: Inputs,
) -> Seen:
    """Return what the networks say of images of the bank, computed unless it has them."""
    found = [features_of(Piece(network=name, images=images, num_images=count), inputs=inputs) for name in names]
    logits = np.stack([own["logits"] for own in found], axis=1)
    features = np.stack([own["features"][:, -LAST:] for own in found])
    return Seen(
        logits / np.asarray(cooling, np.float32)[None, :, None], logits / np.float32(cold), features, found[0]["y"]
    )


def _exact(logits: Float[np.ndarray, "images classes"], y: Int[np.ndarray, " images"], alpha: float) -> Losses:
    """Return the losses of the exact head."""
    found = logits_log_losses(logits.astype(np.float32), y, alpha=alpha, tau=TAU)
    named = {"error": found.error, "marginal": found.marginal, "joint": found.joint}
    return {kind: np.asarray(each.values, np.float64)[None] for kind, each in named.items() if each is not None}


def _own(enn: AbstractENN, x: Float[np.ndarray, "images particles classes"], y: Int[np.ndarray, " images"]) -> Losses:
    """Return the losses of particles."""
    found = log_losses(enn, x.astype(np.float32), y, Draws.all(enn.index), tau=TAU)
    named = {"error": found.error, "marginal": found.marginal, "joint": found.joint}
    return {kind: np.asarray(each.values, np.float64)[None] for kind, each in named.items() if each is not None}


def _agents(config: ShiftedHead, names: Sequence[str], seen: Seen) -> list[tuple[dict[str, Any], Losses]]:
    """Return all agents' losses on pairs of images, each image seen once and repeated."""
    found = []
    for number, name in enumerate(names):
        own = seen.networks[:, number]
        found.append((about(name, "exact head"), _exact(own, seen.y, config.alpha)))
        found.append((about(name, "network"), _exact(own, seen.y, 1.0)))
    told = {"network": f"first_{config.size}", "size": config.size}
    told["parameters"] = config.size * network_parameters(config.depth)
    found.append(({"agent": "ensemble", **told}, _own(StoredParticles(config.size), seen.particles, seen.y)))
    found.append(({"agent": "ensemble + head", **told}, _exact(seen.mean(), seen.y, config.alpha)))
    return found


def _shifted_rows(config: ShiftedHead, names: Sequence[str], seen: Seen, clean: Seen) -> list[Row]:
    """Return losses on the images as they are, under each shift, and the mean over all shifts."""
    count = config.bank.num_shifted
    kinds = [("none", 0), *shifts()]
    parts = [clean, *(seen.at(slice(number * count, (number + 1) * count)) for number in range(len(kinds) - 1))]
    judged = [_agents(config, names, part) for part in parts]
    kinds.append(("mean", 0))
    # Each agent's losses on the same images, a mean over all shifts.
    judged.append(
        [
            (told, {kind: np.mean([own[place][1][kind] for own in judged[1:]], axis=0) for kind in losses})
            for place, (told, losses) in enumerate(judged[0])
        ]
    )
    return [
        row
        for (kind, strength), agents in zip(kinds, judged, strict=True)
        for told, losses in agents
        for row in block_rows(
            losses,
            (1,),
            fold=0,
            blocks=config.shifted_blocks,
            exact=True,
            part="shifted",
            shift=kind,
            strength=strength,
            **told,
        )
    ]


def _augmented_rows(config: ShiftedHead, names: Sequence[str], seen: Seen, *, key: PRNGKeyArray) -> list[Row]:
    """Return joint losses of draws from pairs, every draw augmented anew: no two are the same image."""
    rows = []

    def add(losses: Float[np.ndarray, " pairs"], marginal: Float[np.ndarray, " images"], **told: Any) -> None:
        found = {"joint": losses[None], "marginal": marginal[None]}
        rows.extend(block_rows(found, (1,), fold=0, blocks=config.dyad_blocks, exact=False, part="augmented", **told))

    def fields(logits: Float[np.ndarray, "images classes"], base: int, **told: Any) -> None:
        data = {"logits": jnp.asarray(logits, dtype=jnp.float32), "features": jnp.asarray(seen.features[base])}
        field_key, index_key = named_keys(key, f"field {base}", f"indices {base}")
        head = field_head(
            Batch(data, seen.y, np.arange(len(seen.y))), config.field_alpha, config.length_scales[0], key=field_key
        )
        draws = Draws.sample(head.index, config.num_samples, key=index_key)
        for length_scale in config.length_scales:
            enn = head.with_parameters(length_scale=length_scale)
            joint = joint_log_loss(enn, data, seen.y, draws, tau=TAU)
            marginal = joint_log_loss(enn, data, seen.y, draws, tau=1)
            add(np.asarray(joint.values), np.asarray(marginal.values), length_scale=length_scale, **told)

    for number, name in enumerate(names[: config.num_bases]):
        own = log_loss(seen.networks[:, number], seen.y, 1.0)
        add(own.reshape(-1, TAU).sum(axis=1), own, **about(name, "network"))
        fields(seen.networks[:, number], number, **about(name, "field"))
    told = {"network": f"first_{config.size}", "size": config.size}
    told["parameters"] = config.size * network_parameters(config.depth)
    enn = StoredParticles(config.size)
    particles = seen.particles.astype(np.float32)
    joint, marginal = (joint_log_loss(enn, particles, seen.y, Draws.all(enn.index), tau=tau) for tau in (TAU, 1))
    add(np.asarray(joint.values), np.asarray(marginal.values), agent="ensemble", **told)
    fields(seen.mean(), 0, agent="ensemble + field", **told)
    return rows


def run(config: ShiftedHead, *, key: PRNGKeyArray, inputs: Inputs) -> list[Row]:
    """Return losses of all agents on shifted images and under augmented draws."""
    names = [f"resnet{config.depth}_{number:02d}" for number in range(config.size)]
    bank = config.bank
    first = max(bank.num_shifted, bank.num_dyads)
    chosen = slice(first, first + config.num_tuning)

    def tuning(data: Batch) -> Batch:
        x: Any = (
            {name: leaf[chosen] for name, leaf in data.x.items()} if isinstance(data.x, Mapping) else data.x[chosen]
        )
        return Batch(x, data.y[chosen], data.i[chosen])

    stored = [batch_of(name) for name in names]
    cooling = [best_marginal(tuning(data), config.temperatures) for data in stored]
    enn = StoredParticles(config.size)
    particles = particles_of(names)
    cold = choose_temperature(enn, [tuning(particles)], Draws.all(enn.index), config.temperatures)
    logits = np.asarray(particles.x)[: bank.num_shifted]
    clean = Seen(
        logits / np.asarray(cooling, np.float32)[None, :, None],
        logits / np.float32(cold),
        np.zeros((len(names), bank.num_shifted, 0), np.float32),
        np.asarray(particles.y)[: bank.num_shifted],
    )
    seen = {
        images: _look(config, names, images, count, cooling, cold, inputs)
        for images, count in (("shifted", bank.num_shifted), ("dyads", bank.num_dyads))
    }
    return [
        *_shifted_rows(config, names, seen["shifted"], clean),
        *_augmented_rows(config, names, seen["dyads"], key=key),
    ]
