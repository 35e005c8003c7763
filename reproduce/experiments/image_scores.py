"""Rows of results of the image protocols: losses, and what a prediction costs."""

import functools as ft
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from epinet_eqx import AbstractENN, Tempered
from epinet_eqx.losses import Batch
from epinet_eqx.metrics import Cost, LogLosses, cost, log_loss_curve, log_losses, tune_temperature

from ..configs.images import Protocol
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
    return hasattr(enn.index, "support")


def choose_temperature(enn: AbstractENN, protocol: Protocol, held_out: Batch, *, key: PRNGKeyArray) -> float:
    """Return the temperature with the lowest joint loss on held-out data whose marginal loss is no worse than at one.

    The paper tunes every method for its joint loss, subject to its marginal loss. A tenth of the indices will do.
    """
    finite = is_finite(enn)
    found = tune_temperature(
        enn,
        held_out.x,
        held_out.y,
        temperatures=jnp.asarray(protocol.temperatures),
        num_samples=None if finite else max(100, protocol.num_samples // 10),
        key=None if finite else key,
    )
    return round(float(found.best), 6)


def score(
    lab: Lab, agent: str, size: int, enn: AbstractENN, *, tuned: bool = True, curve: bool = True, **more: Any
) -> list[dict[str, Any]]:
    """Return the rows of one ENN: at every number of indices, or one exact row; at the chosen temperature.

    Args:
        lab: the seed.
        agent: name of the method.
        size: size of its network, or its number of particles.
        enn: the ENN.
        tuned: whether a temperature is chosen on held-out data; else it stays at one.
        curve: whether all numbers of indices are of interest, or the figures' only.
        more: further columns.
    """
    protocol, test = lab.protocol, lab.data.test_batch
    key = lab.key_of("indices", shared=True)
    temperature = choose_temperature(enn, protocol, lab.data.validation, key=key) if tuned else 1.0
    tempered = Tempered(enn, temperature)
    known = {"agent": agent, "size": size, "seed": lab.seed, "temperature": temperature, **more}
    if is_finite(enn):
        found = [log_losses(tempered, test.x, test.y, num_samples=None, key=None)]
    else:
        counts = protocol.sample_counts if curve else (protocol.num_samples,)
        found = list(log_loss_curve(tempered, test.x, test.y, sample_counts=counts, key=key))
    parameters, flops = _cost(tempered, test.x[0], [losses.joint.num_samples for losses in found])
    return [
        {**known, **losses_row(losses), "parameters": parameters, "flops": count}
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
