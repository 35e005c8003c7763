"""Configuration of the testbed's limit: the posterior of the generative model itself."""

from collections.abc import Mapping
from dataclasses import dataclass

COVERED = (*range(1, 46), *range(61, 106), *range(121, 136))
"""Problems whose posterior has been sampled: two inputs and up to 200 examples, ten and 1000, a hundred and 100."""

FEW_EXAMPLES = 20
"""Up to so many, there are twice as many chains: the posterior is nearly the prior, and a run starts from its draws."""

MANY_EXAMPLES = 1000
"""From so many on, there are half as many chains with twice as many moves between samples.

On a problem of another seed chains agreed better so, and cost less.
"""

MANY_INPUTS = 100
"""From so many on, there are twice as many moves between samples: R-hat fell on a problem of another seed."""


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The posterior of one problem, sampled twice.

    Attributes:
        problem: number of the problem, from 1 to 180.
        num_chains: number of chains of each run.
        num_samples: samples of each chain.
        thin: moves between samples.
        num_batches: number of pairs of anchors that the divergence is averaged over.
    """

    problem: int
    num_chains: int
    num_samples: int
    thin: int
    num_batches: int


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The posterior on problems.

    Attributes:
        problems: numbers of the problems.
        num_chains: number of chains of each run.
        num_samples: samples of each chain.
        num_batches: as in `Optimum`.
    """

    problems: tuple[int, ...] = COVERED
    num_chains: int = 64
    num_samples: int = 16
    num_batches: int = 1000

    def units(self) -> Mapping[str, Optimum]:
        """Return one run per problem."""
        return {f"bayes-{problem:03d}": self._of(problem) for problem in self.problems}

    def _of(self, problem: int) -> Optimum:
        """Return the run on one problem."""
        block, rest = divmod(problem - 1, 60)
        input_dim = (2, 10, 100)[block]
        num_train = input_dim * (1, 10, 100, 1000)[rest // 15]
        share = 2 if num_train <= FEW_EXAMPLES else 0.5 if num_train >= MANY_EXAMPLES else 1
        return Optimum(
            problem=problem,
            num_chains=round(share * self.num_chains),
            num_samples=self.num_samples // max(round(share), 1),
            thin=(4 if share != 1 else 2) * (2 if input_dim >= MANY_INPUTS else 1),
            num_batches=self.num_batches,
        )
