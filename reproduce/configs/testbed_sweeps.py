"""Configuration of the authors' sweeps on the Neural Testbed, for agents that Adam trains."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .testbed import MANY_DATA, TWO_SEEDS, Changes, Score, Variant, scores_of, variant_of


def _each(**values: tuple[object, ...]) -> tuple[Changes, ...]:
    """Return one change for each value of each field."""
    return tuple(((name, value),) for name, own in values.items() for value in own)


SWEEPS: Mapping[str, tuple[Changes, ...]] = {
    "dropout": (
        *_each(rate=(0.0, 0.2, 0.3, 0.5, 0.7, 0.9), decay=(0.1, 0.3, 3.0, 10.0), hidden=((50, 50),), num_steps=(500,)),
        *((("rate", rate), ("dropout_input", True)) for rate in (0.1, 0.3, 0.5)),
    ),
    "bbb": _each(learning_rate=(1e-3,), prior_std=(2.0, 4.0), hidden=((100, 100),), num_steps=(500,)),
    "hypermodel": (
        *_each(prior_scale=(3.0,), prior_hidden=((10, 10),), index_dim=(3, 5, 7)),
        *_each(decay=(0.1, 0.3, 3.0, 10.0), num_steps=(1000,)),
        (("prior_scale", 3.0), ("prior_hidden", (10, 10))),
    ),
    "ensemble+": _each(decay=(0.1, 0.3, 3.0, 10.0), prior_scale=(1.0,), batch_strategy=(True,)),
}
"""What members of the authors' sweeps change about the released agents, which are members, too.

Left out are what the released code ignores, bootstraps, which all sweeps have as one choice of three, decays and prior
scales that do not follow the temperature, and every second rate of dropout.
"""

SWEPT_PARTICLES = 30
"""Particles of `ensemble+` in its sweep, which has 1 to 100 of them."""

SWEPT_PROBLEMS = (16, 21, 26, 61, 66, 71, 76, 81, 86)
"""Settings on which members are compared: one problem per temperature at three sizes, 10 to 100 examples."""

SWEPT: Mapping[str, Changes] = {
    "dropout": (("rate", 0.5),),
    "bbb": (("hidden", (100, 100)),),
    "hypermodel": (("index_dim", 5),),
    "ensemble+": (("batch_strategy", True),),
}
"""The best of each sweep on the problems of `Sweeps`; a test compares them with the accepted numbers."""

SWEPT_JUDGED = tuple(problem for problem in TWO_SEEDS if problem not in MANY_DATA)
"""Problems on which these are judged: two of each setting with data ratios as in the sweeps."""


def member_of(agent: str, changes: Changes = ()) -> Variant:
    """Return a member of an agent's sweep; the released agent is the one without changes."""
    size = {"num_particles": SWEPT_PARTICLES} if agent == "ensemble+" else {}
    return variant_of(agent, **size, **dict(changes))


@dataclass(frozen=True, kw_only=True)
class Sweeps:
    """The authors' sweeps, on problems of their own.

    Attributes:
        sweeps: the members by agent, without the released one.
        problems: numbers of the problems, whose settings are those of the testbed; another seed draws them.
        num_batches: as in `Score`.
    """

    sweeps: Mapping[str, tuple[Changes, ...]] = field(default_factory=lambda: SWEEPS)
    problems: tuple[int, ...] = SWEPT_PROBLEMS
    num_batches: int = 300

    def units(self) -> Mapping[str, Score]:
        """Return one run per member of a sweep and problem."""
        members = [member_of(agent, changes) for agent, own in self.sweeps.items() for changes in ((), *own)]
        return scores_of(((member, problem) for member in members for problem in self.problems), self.num_batches)


@dataclass(frozen=True, kw_only=True)
class Swept:
    """The best member of each sweep, on problems that are judged; attributes as in `Sweeps`."""

    members: Mapping[str, Changes] = field(default_factory=lambda: SWEPT)
    problems: tuple[int, ...] = SWEPT_JUDGED
    num_batches: int = 1000

    def units(self) -> Mapping[str, Score]:
        """Return one run per agent and problem."""
        members = [member_of(agent, changes) for agent, changes in self.members.items()]
        return scores_of(((member, problem) for member in members for problem in self.problems), self.num_batches)
