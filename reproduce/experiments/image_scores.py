"""Rows of results of the image protocols: losses, and what a prediction costs."""

import functools as ft
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from epinet_eqx import AbstractENN, Cost, Draws, Tempered, cost
from epinet_eqx.losses import Batch
from epinet_eqx.metrics import Estimate, LogLosses, log_loss_curve, log_losses
from epinet_eqx.tuning import tune_temperature

from ..configs.images import Protocol
from .image_agents import Agent
from .image_lab import Lab

# Operations are counted for one of so many inputs, at so many indices.
_COST_BATCH = 100
_COST_COUNTS = (1, 11)


def losses_row(found: LogLosses) -> dict[str, Any]:
    """Return losses and their standard errors over test examples."""
    row: dict[str, Any] = {"num_samples": found.joint.num_samples, "exact": found.joint.exact}
    for name in ("error", "marginal", "joint"):
        estimate = getattr(found, name)
        row[name], row[f"{name}_error"] = float(estimate.mean), float(estimate.standard_error)
    return row


def is_finite(enn: AbstractENN) -> bool:
    """Return whether the index has a finite support, over which averages are exact."""
    return enn.index.support() is not None


def draws_of(enn: AbstractENN, num_samples: int, *, key: PRNGKeyArray) -> Draws:
    """Return all indices of a finite support, however many, or sampled ones."""
    return Draws.all(enn.index) if is_finite(enn) else Draws.sample(enn.index, num_samples, key=key)


def joined(estimates: Sequence[Estimate]) -> Estimate:
    """Return an estimate over all the data that several are of, each of a part."""
    first = estimates[0]
    values = jnp.concatenate([found.values for found in estimates], axis=-1)
    return Estimate(values, first.num_samples, first.tau, first.exact)


def choose_temperature(enn: AbstractENN, protocol: Protocol, held_out: Iterable[Batch], *, key: PRNGKeyArray) -> float:
    """Return the temperature with the lowest joint loss on held-out data whose marginal loss is no worse than at one.

    The paper tunes every method for its joint loss, subject to its marginal loss. A tenth of the indices will do.
    """
    draws = draws_of(enn, max(100, protocol.num_samples // 10), key=key)
    temperatures = jnp.asarray(protocol.temperatures)
    found = [
        tune_temperature(
            enn,
            batch.x,
            batch.y,
            draws,
            temperatures=temperatures,
        )
        for batch in held_out
    ]
    # Candidate 0 is the ENN as it is.
    joint, marginal = (joined([getattr(part, name) for part in found]).mean for name in ("losses", "marginal"))
    best = int(jnp.argmin(jnp.where(marginal <= marginal[0], joint, jnp.inf)))
    return round(float((1.0, *protocol.temperatures)[best]), 6)


def _losses(enn: AbstractENN, batches: Iterable[Batch], counts: Sequence[int], key: PRNGKeyArray) -> list[LogLosses]:
    """Return the losses at each number of indices, or the exact ones, over all batches."""
    draws = draws_of(enn, counts[-1], key=key)
    parts: list[tuple[LogLosses, ...]] = []
    for batch in batches:
        if draws.exact:
            parts.append((log_losses(enn, batch.x, batch.y, draws),))
        else:
            parts.append(log_loss_curve(enn, batch.x, batch.y, draws, sample_counts=tuple(counts)))
    names = ("marginal", "joint", "error")
    return [
        LogLosses(*(joined([getattr(one, name) for one in own]) for name in names)) for own in zip(*parts, strict=True)
    ]


def score(
    lab: Lab, agent: Agent, *, temperature: float | None = None, curve: bool = True, **more: Any
) -> list[dict[str, Any]]:
    """Return the rows of one agent: at every number of indices, or one exact row.

    Args:
        lab: the seed.
        agent: the agent.
        temperature: what its outputs are divided by; by default what is best on held-out data.
        curve: whether all numbers of indices are of interest, or the figures' only.
        more: further columns.
    """
    protocol = lab.protocol
    key = lab.key_of("indices", shared=True)
    if temperature is None:
        temperature = choose_temperature(agent.enn, protocol, agent.batches("validation"), key=key)
    counts = protocol.sample_counts if curve else (protocol.num_samples,)
    found = _losses(Tempered(agent.enn, temperature), agent.batches("test"), counts, key)
    used = [max(1, int(losses.joint.num_samples) // agent.copies) for losses in found]
    parameters, flops = _cost(Tempered(agent.counted, temperature), lab.backend.example, used)
    known = {
        "agent": agent.name,
        "size": agent.size,
        "seed": lab.backend.seed.number,
        "temperature": temperature,
        **more,
    }
    return [
        {**known, **losses_row(losses), "parameters": agent.copies * parameters, "flops": agent.copies * count}
        for losses, count in zip(found, flops, strict=True)
    ]


@ft.cache
def _counted(leaves: tuple[Any, ...], structure: Any, x: jax.ShapeDtypeStruct, num_samples: int) -> Cost:
    """Return the cost of an ENN, given by its leaves: it depends on shapes only, which many ENNs share."""

    def filled(leaf: Any) -> Any:
        return jnp.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf

    enn = jax.tree.unflatten(structure, [filled(leaf) for leaf in leaves])
    return cost(enn, filled(x), num_samples=num_samples, batch_size=_COST_BATCH)


def _shape(leaf: Any) -> Any:
    """Return the shape and type of an array; anything else stays as it is."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf


def _cost(enn: AbstractENN, x: Array, counts: Sequence[int]) -> tuple[int, list[float]]:
    """Return the parameters, and the operations at several numbers of indices.

    They are linear in the number of indices, so two counts will do; an ensemble uses each particle once.
    """
    leaves, structure = jax.tree.flatten(enn)
    shapes = tuple(_shape(leaf) for leaf in leaves)
    example = _shape(x)
    if is_finite(enn):
        found = [_counted(shapes, structure, example, count) for count in counts]
        return found[0].parameters, [own.flops for own in found]
    few, many = (_counted(shapes, structure, example, count) for count in _COST_COUNTS)
    slope = (many.flops - few.flops) / (_COST_COUNTS[1] - _COST_COUNTS[0])
    return few.parameters, [few.flops + slope * (count - _COST_COUNTS[0]) for count in counts]
