"""All agents of the paper, with their tuned defaults (Table 1)."""

from ..._checks import check_positive, unknown_name
from .._setting import Setting
from ._agent import AbstractAgent
from ._baselines import BBBAgent, DropoutAgent, EnsembleAgent, EnsemblePlusAgent, HypermodelAgent, MLPAgent
from ._epinet import EpinetAgent
from ._sgmcmc import SGMCMCAgent

AGENTS: dict[str, AbstractAgent] = {
    "mlp": MLPAgent(),
    "ensemble": EnsembleAgent(),
    "dropout": DropoutAgent(),
    "bbb": BBBAgent(),
    "hypermodel": HypermodelAgent(),
    "ensemble+": EnsemblePlusAgent(),
    "sgmcmc": SGMCMCAgent(),
    "epinet": EpinetAgent(),
}
"""The agents of Table 1 by their names, with tuned hyperparameters."""


def find_agent(name: str) -> AbstractAgent:
    """Return an agent of the paper by its name."""
    if name not in AGENTS:
        raise unknown_name("name", name, AGENTS)
    return AGENTS[name]


def training_groups(
    agent: AbstractAgent, problems: list[Setting], *, max_members: int = 15
) -> list[tuple[Setting, ...]]:
    """Return settings in groups that `train_agent` can train at once, each of at most `max_members`.

    The groups of one kind follow one another, in the order of their first setting; all but the last of a kind are of
    equal size, so that they share a compiled program.
    """
    check_positive("max_members", max_members)
    kinds: dict[object, list[Setting]] = {}
    for setting in problems:
        kinds.setdefault(agent.group(setting.input_dim, setting.num_train), []).append(setting)
    return [
        tuple(members[start : start + max_members])
        for members in kinds.values()
        for start in range(0, len(members), max_members)
    ]
