"""How much to optimize a program: one that runs once should not take longer to compile than to run."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax

_F = TypeVar("_F", bound=Callable[..., Any])

# Typed loosely: Equinox hands further options on to JAX, which its annotations do not say.
_jit: Any = eqx.filter_jit


# Later versions of XLA have no such switch.
_NO_EMITTERS = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}


def jit_unoptimized(function: _F) -> _F:
    """Compile a function that runs in a moment whatever its code: in a small part of the time of a full compilation."""
    return _jit(function, compiler_options={"xla_backend_optimization_level": 0, **_NO_EMITTERS})


def jit_lightly(function: _F) -> _F:
    """Compile what runs some seconds, over long vectors: in half the time of a full compilation, and faster.

    Vectors of 512 bits are worth it where long arrays are mapped by `exp`; a CPU that has none ignores the wish.
    """
    return _jit(function, compiler_options={"xla_backend_optimization_level": 1, "xla_cpu_prefer_vector_width": 512})


def jit_for_one_run(function: _F) -> _F:
    """Compile what runs a few seconds at most, once: many small operations, or many normal variables to draw.

    In half the time of a full compilation, and as fast.
    """
    return _jit(function, compiler_options={"xla_backend_optimization_level": 1, **_NO_EMITTERS})
