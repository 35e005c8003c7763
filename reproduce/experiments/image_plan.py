"""What a protocol would train: each step as a function and the shapes of its arguments, listed instead of run."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


def is_shape(leaf: Any) -> bool:
    """Return whether a leaf is an array, or stands for one."""
    return eqx.is_array(leaf) or isinstance(leaf, (jax.ShapeDtypeStruct, np.ndarray))


def num_bytes(tree: Any) -> int:
    """Return the size of the arrays of a tree; random keys are as good as nothing."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if is_shape(leaf)]
    return sum(
        leaf.size * leaf.dtype.itemsize for leaf in leaves if not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
    """A training that was asked for.

    Attributes:
        name: what is trained.
        step: one step as a function of arrays; what it returns first replaces its first argument.
        arguments: arrays or their shapes, with the way they are placed.
        steps: number of steps.
        copies: how many such networks there are.
        disk: bytes that stay on the disk of each.
        detail: what tells it from others of the same name.
    """

    name: str
    step: Callable[..., Any]
    arguments: tuple[Any, ...]
    steps: int
    copies: int
    disk: int
    detail: Any

    @property
    def program(self) -> Any:
        """What the compiled step depends on: programs that differ in values only are the same."""
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(self.arguments))
        samples = getattr(self.detail, "num_index_samples", None)
        return self.name.split()[0], jax.tree.structure(self.arguments), shapes, samples


class Planner:
    """The trainer that trains nothing: it lists the trainings that a protocol asks for, each once."""

    def __init__(self):
        """Initialize without entries."""
        self.trainings: list[Planned] = []

    def __call__(self, train: Callable[[], Any], plan: Callable[[], tuple[Planned | None, Any]]) -> Any:
        """Take a training into the list, unless it is there, and return what stands for its result."""
        planned, result = plan()
        known = [(own.name, own.detail) for own in self.trainings]
        if planned is not None and (planned.name, planned.detail) not in known:
            self.trainings.append(planned)
        return result
