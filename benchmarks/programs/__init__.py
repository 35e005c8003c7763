"""The programs that are measured: small, named, and together what users run."""

import importlib
from collections.abc import Callable
from typing import Any

import equinox as eqx

from ._program import MakeProgram as MakeProgram
from ._program import Program as Program


def _at(module: str, function: str, *args: Any) -> MakeProgram:
    """Return the maker of a program, imported when it is called: an older source tree may lack what others need."""

    def make(value: float) -> Program:
        return getattr(importlib.import_module(module, __name__), function)(*args, value)

    return make


PROGRAMS: dict[str, MakeProgram] = {
    "epinet: embed": _at("._epinet", "embed"),
    "epinet: head": _at("._epinet", "head"),
    "epinet: heads, M = 1000": _at("._epinet", "heads"),
    "epinet: streamed losses": _at("._epinet", "streamed_losses"),
    "dyadic: exact": _at("._epinet", "dyadic_exact"),
    "dyadic: sampled": _at("._epinet", "dyadic_sampled"),
    "predict: uncertainty": _at("._epinet", "decomposition"),
    "predict: joint table": _at("._epinet", "joint_probabilities"),
    "step: mlp": _at("._training", "agent_step", "mlp"),
    "step: ensemble": _at("._training", "agent_step", "ensemble"),
    "step: ensemble+": _at("._training", "agent_step", "ensemble+"),
    "step: dropout": _at("._training", "agent_step", "dropout"),
    "step: bbb": _at("._training", "agent_step", "bbb"),
    "step: hypermodel": _at("._training", "agent_step", "hypermodel"),
    "step: epinet": _at("._training", "agent_step", "epinet"),
    "step: sgmcmc": _at("._training", "chain"),
    "step: stack of networks": _at("._training", "stacked_step"),
    "loop: mlp": _at("._training", "loop"),
    "testbed: exact KL": _at("._testbed", "kl_exact"),
    "testbed: sampled KL": _at("._testbed", "kl_sampled"),
    "resnet: forward": _at("._images", "forward"),
    "resnet: step": _at("._images", "step"),
}
"""Pure functions, each of which is compiled as a whole."""


def build(make: Callable[[Any], Program], value: float = 1.0) -> Program:
    """Return a pure function with its arrays, all of which one hastily compiled program makes: faster than each."""
    jit: Any = eqx.filter_jit
    return jit(make, compiler_options={"xla_backend_optimization_level": 0})(value)


ENTRY_POINTS: dict[str, MakeProgram] = {
    "call: log_losses": _at("._epinet", "losses_as_called"),
    "call: fit": _at("._training", "fit_as_called"),
    "call: evaluate": _at("._testbed", "evaluation_as_called"),
}
"""Functions that compile by themselves: only how often they do, and how long they take, can be told from outside."""
