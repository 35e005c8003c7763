"""How time and memory grow: with the number of indices, the batch, particles, the index dimension, and classes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from epinet_eqx import AbstractENN, Draws, attach
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.metrics import dyadic_log_loss
from epinet_eqx.networks import MLP

from ._compiled import compile_program
from ._measure import minimum_times, temporary_bytes
from .programs import Program, build
from .programs._training import stacked_step_of

_ROUNDS = 5
_CHUNK = 50


class Curve(NamedTuple):
    """Times and temporary memory over sizes, in seconds and bytes."""

    what: str
    sizes: tuple[int, ...]
    times: tuple[float, ...]
    memory: tuple[float, ...]

    @property
    def time_exponent(self) -> float:
        """The power of the size that time grows with."""
        return fit_exponent(self.sizes, self.times)

    @property
    def memory_exponent(self) -> float:
        """The power of the size that memory grows with."""
        return fit_exponent(self.sizes, self.memory)


def fit_exponent(sizes: Any, values: Any) -> float:
    """Return the slope of the values over the sizes on logarithmic axes, by least squares."""
    return float(np.polyfit(np.log(np.asarray(sizes)), np.log(np.asarray(values)), 1)[0])


def joint_loss(*, samples: int = 500, batch: int = 64, index_dim: int = 8, classes: int = 10) -> Program:
    """Return the streamed joint loss of an epinet of this size."""
    base = MLP(64, classes, (64,), key=jr.key(0))
    enn = attach(base, out_size=classes, index_dim=index_dim, key=jr.key(1))
    x, y = jr.normal(jr.key(2), (batch, 64)), jnp.arange(batch, dtype=jnp.int32) % classes

    def evaluate(enn: AbstractENN, x: jax.Array, y: jax.Array, key: jax.Array) -> Any:
        return dyadic_log_loss(enn, x, y, Draws.sample(enn.index, samples, key=key, chunk_size=_CHUNK)).mean

    return Program(evaluate, (enn, x, y, jr.key(3)), enn, samples // _CHUNK)


def _particles(number: int) -> Program:
    """Return a training step of a stack of networks."""
    return stacked_step_of(number, CrossEntropy(l2=1e-3))


CURVES: dict[str, tuple[tuple[int, ...], Callable[[int], Program]]] = {
    "indices M": ((250, 500, 1000, 2000), lambda size: joint_loss(samples=size)),
    "batch": ((32, 64, 128, 256), lambda size: joint_loss(batch=size)),
    "particles": ((4, 8, 16, 32), _particles),
    "index dimension": ((8, 16, 32, 64), lambda size: joint_loss(index_dim=size)),
    "classes": ((10, 20, 40, 80), lambda size: joint_loss(classes=size)),
}
"""What grows, its sizes, and the program of a size: a joint loss, or for particles a training step."""


def measure_curves() -> list[Curve]:
    """Measure all curves; the sizes of a curve take turns."""
    curves = []
    for what, (sizes, make) in CURVES.items():
        programs = [compile_program(build(make, size)) for size in sizes]
        times = minimum_times([program.call for program in programs], rounds=_ROUNDS)
        # A program may need no temporary memory; on logarithmic axes that is a byte.
        memory = [float(max(1, temporary_bytes(program.compiled))) for program in programs]
        curves.append(Curve(what, sizes, tuple(times), tuple(memory)))
    return curves
