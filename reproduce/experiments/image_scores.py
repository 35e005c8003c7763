"""Rows of results of the image protocols: losses, and what a prediction costs."""

import functools as ft
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from epinet_eqx import AbstractENN, Cost, Tempered, cost

from .image_agents import Agent
from .image_lab import Lab
from .scoring import choose_temperature, draws_of, losses_of, summary, values_at

# Operations are counted for one of so many inputs, at so many indices.
_COST_BATCH = 100
_COST_COUNTS = (1, 11)


def _losses_row(losses: dict[str, Any], place: int) -> dict[str, float]:
    """Return losses at one of the numbers of indices, and their standard errors over test examples."""
    row = {}
    for name, values in losses.items():
        row[name], row[f"{name}_error"] = summary(values[place])
    return row


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
        # A tenth of the indices will do to choose it.
        draws = draws_of(agent.enn, max(100, protocol.num_samples // 10), key=key)
        temperature = choose_temperature(agent.enn, agent.batches("validation"), draws, (1.0, *protocol.temperatures))
    counts = protocol.sample_counts if curve else (protocol.num_samples,)
    draws = draws_of(agent.enn, counts[-1], key=key)
    found = losses_of(agent.enn, agent.batches("test"), draws, temperatures=(temperature,), counts=counts)
    losses = values_at(found, 0)
    used = [max(1, count // agent.copies) for count in found.sample_counts]
    parameters, flops = _cost(Tempered(agent.counted, temperature), lab.backend.example, used)
    known = {
        "agent": agent.name,
        "size": agent.size,
        "seed": lab.backend.seed.number,
        "temperature": temperature,
        **more,
    }
    return [
        {
            **known,
            "num_samples": count,
            "exact": found.exact,
            **_losses_row(losses, place),
            "parameters": agent.copies * parameters,
            "flops": agent.copies * flops[place],
        }
        for place, count in enumerate(found.sample_counts)
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
    if enn.index.support() is not None:
        found = [_counted(shapes, structure, example, count) for count in counts]
        return found[0].parameters, [own.flops for own in found]
    few, many = (_counted(shapes, structure, example, count) for count in _COST_COUNTS)
    slope = (many.flops - few.flops) / (_COST_COUNTS[1] - _COST_COUNTS[0])
    return few.parameters, [few.flops + slope * (count - _COST_COUNTS[0]) for count in counts]
