"""What XLA counts of a program: it is compiled for the devices there are, which may be simulated, and never run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

# Simulated devices run nothing: their machine code need not be fast, which is what takes a compiler so long. Nor need
# it be what suits a CPU: calls of its libraries, sums by trees, sending small arrays together. An accelerator has
# none of these, and they hold intermediate results in memory that it would not.
_QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_disable_hlo_passes": "dot-library-rewriter,tree_reduction_rewriter,cpu-all-reduce-combiner",
}


@dataclass(frozen=True, kw_only=True)
class Counted:
    """XLA's counts of one step: operations of all devices together, and bytes that each device needs."""

    flops: float
    memory: int


def _compile(lowered: Any) -> Any:
    """Compile a program, for simulated devices in the quickest way that this version of XLA knows."""
    if jax.default_backend() != "cpu":
        return lowered.compile()
    options: dict[str, Any] = dict(_QUICK)
    while True:
        try:
            return lowered.compile(options)
        except jax.errors.JaxRuntimeError as error:
            refused = [name for name in options if f"'{name}'" in str(error)]
            if "No such compile option" not in str(error) or not refused:
                raise
            del options[refused[0]]


def count(step: Callable[..., Any], arguments: tuple[Any, ...]) -> Counted:
    """Compile one step and return what XLA counts.

    Args:
        step: the step, a function of arrays; its first argument is given up for its first result.
        arguments: arrays or their shapes, with the way they are placed on devices.
    """
    compiled = _compile(jax.jit(step, donate_argnums=0).lower(*arguments))
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
