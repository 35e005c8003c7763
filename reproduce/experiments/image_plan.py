"""What a protocol would train: the programs are compiled for the devices there are, and counted instead of run."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..record import Row


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
class Counted:
    """What XLA says of one step: operations of all devices together, and bytes that each device needs."""

    flops: float
    memory: int


class Planner:
    """Compiles the training steps that a protocol needs, each shape of it once, and keeps a list of them."""

    def __init__(self, say: Callable[[str], None] = lambda words: None):
        """Initialize without entries; `say` is told what is being compiled."""
        self.rows: list[Row] = []
        self._say = say
        self._counted: dict[Any, Counted] = {}
        self._names: dict[Any, None] = {}

    def add(
        self,
        name: str,
        step: Callable[..., Any],
        arguments: tuple[Any, ...],
        *,
        steps: int,
        copies: int = 1,
        kept: Any,
        outputs: int = 0,
        detail: Any = None,
    ) -> None:
        """Count a training.

        Args:
            name: what is trained.
            step: one step as a function of arrays; what it returns first replaces its first argument.
            arguments: arrays or their shapes, with the way they are placed.
            steps: number of steps.
            copies: how many such networks there are.
            kept: what stays on the disk of each.
            outputs: further bytes on the disk for each: what is computed with it.
            detail: what tells it from others of the same name; the same network is counted once.
        """
        if (name, detail) in self._names:
            return
        self._names[name, detail] = None
        # Programs that differ in values only are the same.
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(arguments))
        key = (name.split()[0], jax.tree.structure(arguments), shapes, getattr(detail, "num_index_samples", None))
        if key not in self._counted:
            self._say(f"compiling the training step of {name}")
            self._counted[key] = _count(step, arguments)
        counted = self._counted[key]
        self.rows.append(
            {
                "network": name,
                "copies": copies,
                "steps": steps,
                "flops": counted.flops,
                "memory": counted.memory,
                "disk": copies * (num_bytes(kept) + outputs),
            }
        )


def _count(step: Callable[..., Any], arguments: tuple[Any, ...]) -> Counted:
    """Compile one step for the devices that its arguments are placed on, and return what XLA counts."""
    lowered = jax.jit(step, donate_argnums=0).lower(*arguments)
    # Simulated devices run nothing: their machine code need not be fast, which is what takes a compiler so long.
    quick = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    compiled = lowered.compile(quick if jax.default_backend() == "cpu" else None)
    devices = max((len(leaf.sharding.device_set) for leaf in jax.tree.leaves(arguments) if leaf.sharding), default=1)
    analysis: Any = compiled.cost_analysis() or {}
    # Some platforms return one dictionary per device program.
    analysis = analysis[0] if isinstance(analysis, list) else analysis
    memory: Any = compiled.memory_analysis()
    needed = 0
    if memory is not None:
        parts = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
        needed = sum(getattr(memory, part) for part in parts) - memory.alias_size_in_bytes
    return Counted(flops=devices * float(analysis.get("flops", 0.0)), memory=int(needed))
