"""Configuration of bounded predictions on the Neural Testbed."""

from collections.abc import Mapping
from dataclasses import dataclass

from .testbed import Variant, variant_of

BOUNDS = (0.0, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1)
"""Least probabilities of a class; zero leaves predictions as they are."""

TWENTY_EXAMPLES = tuple(range(16, 31))
"""Problems with two inputs and twenty examples."""


@dataclass(frozen=True, kw_only=True)
class BoundedScore:
    """An agent with bounded predictions on one problem.

    Attributes:
        variant: the agent.
        problem: number of the problem, from 1 to 180.
        is_judged: whether the problem is that of all other artifacts; otherwise it is of the same setting, drawn with
            another key, and serves to choose the bound.
        bounds: least probabilities of a class.
        num_batches: number of pairs of anchors that the divergence is averaged over.
        max_members: how many problems are trained at once, if they have the same shape.
    """

    variant: Variant
    problem: int
    is_judged: bool
    bounds: tuple[float, ...]
    num_batches: int
    max_members: int = 15


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """Bounded predictions of agents.

    Attributes:
        variants: the agents.
        problems: numbers of the problems that are judged.
        rule_problems: numbers of the problems whose settings the bound is chosen on, drawn with another key.
        bounds: as in `BoundedScore`.
        num_batches: as in `BoundedScore`.
    """

    variants: tuple[Variant, ...] = (variant_of("mlp"), variant_of("epinet"))
    problems: tuple[int, ...] = TWENTY_EXAMPLES
    rule_problems: tuple[int, ...] = TWENTY_EXAMPLES
    bounds: tuple[float, ...] = BOUNDS
    num_batches: int = 200

    def units(self) -> Mapping[str, BoundedScore]:
        """Return one run per agent, problem and purpose."""
        return {
            f"bounded-{variant.label}-{'judged' if is_judged else 'rule'}-{problem:03d}": BoundedScore(
                variant=variant,
                problem=problem,
                is_judged=is_judged,
                bounds=self.bounds,
                num_batches=self.num_batches,
            )
            for variant in self.variants
            for is_judged in (False, True)
            for problem in (self.problems if is_judged else self.rule_problems)
        }
