"""Configuration of the check that the tuned chains of `sgmcmc` are long enough."""

from collections.abc import Mapping
from dataclasses import dataclass

from .testbed import Variant, swept_variant


@dataclass(frozen=True, kw_only=True)
class TunedLengths:
    """Whether the tuned chains of `sgmcmc` are long enough.

    Attributes:
        problems: numbers of the problems, whose settings are those of the testbed; another seed draws them.
        num_steps: lengths of the chains.
        num_batches: as in `Score`.
    """

    problems: tuple[int, ...] = (1, 21, 41, 46, 66, 86, 91, 111, 131, 136, 156, 176)
    num_steps: tuple[int, ...] = (10_000, 20_000, 50_000)
    num_batches: int = 200

    def units(self) -> Mapping[str, "TunedChainOf"]:
        """Return one run per length and problem."""
        return {
            f"tuned-{steps}-{problem:03d}": TunedChainOf(
                variant=swept_variant(problem, steps), num_steps=steps, problem=problem, num_batches=self.num_batches
            )
            for steps in self.num_steps
            for problem in self.problems
        }


@dataclass(frozen=True, kw_only=True)
class TunedChainOf:
    """Two tuned chains of one length on one problem, whose temperature decides about the variant."""

    variant: Variant
    num_steps: int
    problem: int
    num_batches: int
    max_members: int = 15
