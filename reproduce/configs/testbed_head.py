"""Configuration of the Pitman-Yor head on the Neural Testbed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .abstract import Unit, unit_of
from .testbed import ALL_PROBLEMS, Variant, variant_of

ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True)
class HeadScore:
    """An agent's marginal predictions through the head, on one problem.

    Attributes:
        variant: the agent.
        problem: number of the problem, from 1 to 180.
        is_judged: whether the problem is that of all other artifacts; otherwise it is of the same setting, drawn with
            another key, and serves to fit the rule for alpha.
        alphas: aleatoric shares.
        num_batches: number of pairs of anchors that the divergence is averaged over.
        num_samples: index samples of the agent's marginal predictions.
        max_members: how many problems are trained at once, if they have the same shape.
    """

    variant: Variant
    problem: int
    is_judged: bool
    alphas: tuple[float, ...]
    num_batches: int
    num_samples: int
    max_members: int = 15


def units_of(prefix: str, kind: type[Unit], config: Any) -> Mapping[str, Unit]:
    """Return one run per agent, problem and purpose: problems that are judged, and those that a rule is fitted on.

    Args:
        prefix: what names of runs begin with.
        kind: the class of a run.
        config: the configuration, with `variants`, `problems` and `rule_problems`.
    """
    return {
        f"{prefix}-{variant.label}-{'judged' if is_judged else 'rule'}-{problem:03d}": unit_of(
            kind, config, variant=variant, problem=problem, is_judged=is_judged
        )
        for variant in config.variants
        for is_judged in (False, True)
        for problem in (config.problems if is_judged else config.rule_problems)
    }


@dataclass(frozen=True, kw_only=True)
class HeadScaling:
    """The head on the marginal predictions of agents.

    Attributes:
        variants: the agents.
        problems: numbers of the problems that are judged.
        rule_problems: numbers of the problems whose settings the rule is fitted on, drawn with another key.
        alphas: as in `HeadScore`.
        num_batches: as in `HeadScore`.
        num_samples: as in `HeadScore`.
    """

    variants: tuple[Variant, ...] = (variant_of("mlp"),)
    problems: tuple[int, ...] = ALL_PROBLEMS
    rule_problems: tuple[int, ...] = ALL_PROBLEMS[::5]
    alphas: tuple[float, ...] = ALPHAS
    num_batches: int = 1000
    num_samples: int = 1000

    def units(self) -> Mapping[str, HeadScore]:
        """Return one run per agent, problem and purpose."""
        return units_of("head", HeadScore, self)
