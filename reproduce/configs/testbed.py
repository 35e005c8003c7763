"""Configurations of the Neural Testbed's artifacts (Section 5, Appendix F)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .abstract import unit_of

Changes = tuple[tuple[str, Any], ...]
"""Fields of an agent with other values than its tuned ones."""

ENSEMBLE_SIZES = (1, 3, 10, 30, 100)
PAPER_CHAIN = 100_000
"""Steps of the released `sgmcmc` at tier `paper` where data are few; `testbed_chains` tells where that is too short."""

TUNED_CHAIN = 500_000
"""Steps of `sgmcmc` as released."""

ALL_PROBLEMS = tuple(range(1, 181))

MANY_DATA = frozenset(number for number in ALL_PROBLEMS if (number - 1) // 15 % 4 >= 2)
"""Problems with at least a hundred examples per input dimension, on which short chains have not converged."""

TWO_SEEDS = tuple(number for number in ALL_PROBLEMS if number % 5 in (1, 2))
"""Two problems of each of the 36 settings."""

BALANCED = (46, 47, 56, 57, 71, 72, 91, 92, 126, 127, 141, 142)
"""Two problems of each of six settings: two per dimension and per temperature, all data ratios.

Of all such choices that hold the settings of the smaller ablation, it is the one on which agents have the mean
divergences nearest to those on all 180 problems, known from the accepted numbers at tier paper. On a few problems taken
at random, a single hard one decides how agents compare.
"""

ABLATIONS: tuple[tuple[str, tuple[Changes, ...]], ...] = (
    ("index dimension", tuple((("index_dim", value),) for value in (1, 2, 4, 16, 32))),
    ("hidden layers", tuple((("epinet_hidden", (15,) * value),) for value in (1, 3, 4))),
    ("hidden width", tuple((("epinet_hidden", (value,) * 2),) for value in (2, 5, 50, 100))),
    ("prior scale", tuple((("prior_scale", value),) for value in (0.0, 0.03, 0.1, 1.0, 3.0))),
    ("prior width", tuple((("prior_hidden", (value,) * 2),) for value in (1, 2, 10, 50))),
    ("L2 decay", tuple((("decay", value),) for value in (0.002, 0.02, 2.0, 20.0))),
)
"""The rows of Figure 9: one factor at a time, beside the tuned value."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """An agent of the registry, with changes.

    Attributes:
        label: its name in file names and figures.
        agent: its name in the registry.
        changes: what is not as tuned.
    """

    label: str
    agent: str
    changes: Changes = ()


def variant_of(agent: str, **changes: Any) -> Variant:
    """Return a variant whose label tells its changes."""
    words = [f"{name}={value}".replace(" ", "").replace(",)", ")") for name, value in changes.items()]
    return Variant(label="-".join([agent, *words]), agent=agent, changes=tuple(changes.items()))


FEW = (variant_of("mlp"), variant_of("epinet"), variant_of("ensemble", num_particles=3))
"""The agents of tier smoke."""


def _ensembles(sizes: tuple[int, ...]) -> tuple[Variant, ...]:
    """Return both kinds of ensembles in these sizes, the small ones first."""
    return tuple(variant_of(agent, num_particles=size) for size in sizes for agent in ("ensemble", "ensemble+"))


def chain_variant(num_steps: int) -> Variant:
    """Return `sgmcmc` with chains of this length, whose burn-in and thinning are shares of it; 401 samples are kept."""
    return variant_of("sgmcmc", num_steps=num_steps, burn_in=num_steps // 5, thin=max(1, num_steps // 500))


SGMCMC_GRID = tuple((rate, variance) for rate in (5e-4, 1e-3, 5e-3) for variance in (0.05, 0.1, 0.5, 1.0, 2.0, 10.0))
"""Learning rates and prior variances of `sgmcmc` in the authors' sweep; the variance is doubled from 100 inputs on."""

RULE_PROBLEMS = (16, 21, 26, 76, 81, 86, 91, 96, 101, 136, 141, 146)
"""Settings on which `sgmcmc` is tuned: four per temperature, with 2, 10 and 100 inputs, and 20 to 1000 examples."""


def grid_variant(learning_rate: float, prior_variance: float, num_steps: int) -> Variant:
    """Return a member of the authors' sweep of `sgmcmc`, with chains of this length."""
    lengths = dict(chain_variant(num_steps).changes)
    return variant_of(
        "sgmcmc",
        learning_rate=learning_rate,
        prior_variance=prior_variance,
        adaptive_prior_variance=True,
        **lengths,
    )


TUNED_SGMCMC: Mapping[float, tuple[float, float]] = {0.01: (5e-3, 1.0), 0.1: (5e-3, 0.5), 0.5: (1e-3, 0.5)}
"""Learning rate and prior variance of `sgmcmc` by temperature: the best of the sweep on the problems of `Tuning`.

A test compares them with the accepted numbers of that sweep.
"""

SWEPT_CHAIN = 20_000
"""Steps of the tuned `sgmcmc`, whose learning rates are at least ten times the released one."""


def temperature_of(problem: int) -> float:
    """Return the temperature of a problem, by its number."""
    return (0.01, 0.1, 0.5)[(problem - 1) // 5 % 3]


def swept_variant(problem: int, num_steps: int) -> Variant:
    """Return the tuned `sgmcmc` of a problem, with chains of this length."""
    return grid_variant(*TUNED_SGMCMC[temperature_of(problem)], num_steps)


def scaling_variants(sizes: tuple[int, ...], *, chain: int) -> tuple[Variant, ...]:
    """Return the agents of Figure 5, cheap ones first.

    Args:
        sizes: sizes of the ensembles.
        chain: number of steps of `sgmcmc`.
    """
    names = ("mlp", "epinet", "dropout", "bbb", "hypermodel")
    return (*(variant_of(name) for name in names), *_ensembles(sizes), chain_variant(chain))


def curve_variants(sizes: tuple[int, ...], *, chain: int) -> tuple[Variant, ...]:
    """Return agents for curves over the number of indices; not those that make all weights anew for each of them.

    Args:
        sizes: sizes of the ensembles.
        chain: number of steps of `sgmcmc`.
    """
    return tuple(
        variant for variant in scaling_variants(sizes, chain=chain) if variant.agent not in ("bbb", "hypermodel")
    )


def departure_variants(*, chain: int) -> tuple[Variant, ...]:
    """Return the agents whose paper and code differ, in both readings, and `sgmcmc` with wider priors.

    Args:
        chain: number of steps of `sgmcmc`.
    """
    sgmcmc = chain_variant(chain)
    wider = tuple(variant_of("sgmcmc", **dict(sgmcmc.changes), prior_variance=value) for value in (1.0, 10.0))
    readings = (variant_of("epinet", initializer="truncated_normal"), variant_of("epinet", stop_gradient=False))
    return (variant_of("epinet"), *readings, sgmcmc, *wider)


@dataclass(frozen=True, kw_only=True)
class Score:
    """One agent on one problem.

    Attributes:
        variant: the agent.
        problem: number of the problem, from 1 to 180.
        num_batches: number of pairs of anchors that the exact divergence is averaged over.
        max_members: how many problems are trained at once, if they have the same shape.
    """

    variant: Variant
    problem: int
    num_batches: int = 1000
    max_members: int = 15


@dataclass(frozen=True, kw_only=True)
class AgentSummary:
    """Table 1: the agents of the registry."""

    def units(self) -> Mapping[str, "AgentSummary"]:
        """Return the one run."""
        return {"agents": self}


def scores_of(pairs: Iterable[tuple[Variant, int]], num_batches: int) -> Mapping[str, Score]:
    """Return one run per pair of agent and problem."""
    return {
        f"{variant.label}-{problem:03d}": Score(variant=variant, problem=problem, num_batches=num_batches)
        for variant, problem in pairs
    }


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Figure 5: agents on problems.

    Attributes:
        variants: the agents.
        long_chain: number of steps of `sgmcmc` on problems of `MANY_DATA`.
        problems: numbers of the problems.
        num_batches: as in `Score`.
    """

    variants: tuple[Variant, ...] = field(default_factory=lambda: scaling_variants(ENSEMBLE_SIZES, chain=PAPER_CHAIN))
    long_chain: int = TUNED_CHAIN
    problems: tuple[int, ...] = ALL_PROBLEMS
    num_batches: int = 1000

    def units(self) -> Mapping[str, Score]:
        """Return one run per agent and problem."""

        def on(variant: Variant, problem: int) -> Variant:
            return chain_variant(self.long_chain) if variant.agent == "sgmcmc" and problem in MANY_DATA else variant

        pairs = ((on(variant, problem), problem) for variant in self.variants for problem in self.problems)
        return scores_of(pairs, self.num_batches)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The authors' sweep of `sgmcmc`, on problems of its own.

    Attributes:
        grid: learning rates and prior variances.
        problems: numbers of the problems, whose settings are those of the testbed; another seed draws them.
        num_steps: length of the chains.
        num_batches: as in `Score`.
    """

    grid: tuple[tuple[float, float], ...] = SGMCMC_GRID
    problems: tuple[int, ...] = RULE_PROBLEMS
    num_steps: int = 10_000
    num_batches: int = 300

    def units(self) -> Mapping[str, Score]:
        """Return one run per member of the sweep and problem."""
        variants = [grid_variant(rate, variance, self.num_steps) for rate, variance in self.grid]
        return scores_of(((variant, problem) for variant in variants for problem in self.problems), self.num_batches)


@dataclass(frozen=True, kw_only=True)
class TunedChains:
    """The member of the authors' sweep of `sgmcmc` that was chosen by `Tuning`, on the problems that are judged.

    Attributes:
        problems: numbers of the problems.
        num_steps: length of the chains.
        num_batches: as in `Score`.
    """

    problems: tuple[int, ...] = ALL_PROBLEMS
    num_steps: int = SWEPT_CHAIN
    num_batches: int = 1000

    def units(self) -> Mapping[str, Score]:
        """Return one run per problem."""
        return scores_of(
            ((swept_variant(problem, self.num_steps), problem) for problem in self.problems), self.num_batches
        )


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Figure 9: the epinet, one factor at a time.

    Attributes:
        rows: the factors, and the changes of each.
        problems: numbers of the problems.
        num_batches: as in `Score`.
    """

    rows: tuple[tuple[str, tuple[Changes, ...]], ...] = ABLATIONS
    problems: tuple[int, ...] = TWO_SEEDS
    num_batches: int = 1000

    def units(self) -> Mapping[str, Score]:
        """Return one run per variant and problem."""
        changed = (variant_of("epinet", **dict(changes)) for _, row in self.rows for changes in row)
        variants = (variant_of("epinet"), *changed)
        return scores_of(((variant, problem) for variant in variants for problem in self.problems), self.num_batches)


@dataclass(frozen=True, kw_only=True)
class Departures:
    """What it does to the divergence where the paper and the authors' code differ.

    `sgmcmc` runs where its chains are long enough: not on problems of `MANY_DATA`.

    Attributes:
        variants: the agents; those without changes are as everywhere.
        problems: numbers of the problems.
        num_batches: as in `Score`.
    """

    variants: tuple[Variant, ...] = field(default_factory=lambda: departure_variants(chain=PAPER_CHAIN))
    problems: tuple[int, ...] = TWO_SEEDS
    num_batches: int = 1000

    def units(self) -> Mapping[str, Score]:
        """Return one run per agent and problem."""
        pairs = (
            (variant, problem)
            for variant in self.variants
            for problem in self.problems
            if variant.agent != "sgmcmc" or problem not in MANY_DATA
        )
        return scores_of(pairs, self.num_batches)


@dataclass(frozen=True, kw_only=True)
class Curves:
    """How the divergence depends on the number of labels, on the number of indices, and on its estimator.

    Attributes:
        variants: the agents.
        problems: numbers of the problems.
        taus: numbers of labels.
        num_samples: numbers of indices; the last one is used for the curve over labels.
        num_batches: pairs of anchors, and test batches of the sampled estimator.
    """

    variants: tuple[Variant, ...] = field(default_factory=lambda: curve_variants((10, 100), chain=PAPER_CHAIN))
    problems: tuple[int, ...] = tuple(range(76, 91))
    taus: tuple[int, ...] = (1, 2, 5, 10, 30, 100)
    num_samples: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10_000)
    num_batches: int = 1000

    def units(self) -> Mapping[str, "CurvesOf"]:
        """Return one run per agent and problem."""
        return {
            f"{variant.label}-{problem:03d}": unit_of(CurvesOf, self, variant=variant, problem=problem)
            for variant in self.variants
            for problem in self.problems
        }


@dataclass(frozen=True, kw_only=True)
class CurvesOf:
    """The curves of one agent on one problem; attributes as in `Curves`."""

    variant: Variant
    problem: int
    taus: tuple[int, ...]
    num_samples: tuple[int, ...]
    num_batches: int
    max_members: int = 15


@dataclass(frozen=True, kw_only=True)
class Chains:
    """Whether shorter chains of `sgmcmc` do as well as the tuned ones.

    Attributes:
        problems: numbers of the problems.
        num_steps: lengths of the chains.
        num_batches: as in `Score`.
    """

    problems: tuple[int, ...] = (1, 21, 41, 46, 66, 86, 91, 111, 131, 136, 156, 176)
    num_steps: tuple[int, ...] = (20_000, 100_000, 500_000)
    num_batches: int = 200

    def units(self) -> Mapping[str, "ChainOf"]:
        """Return one run per length and problem."""
        return {
            f"sgmcmc-{steps}-{problem:03d}": ChainOf(num_steps=steps, problem=problem, num_batches=self.num_batches)
            for steps in self.num_steps
            for problem in self.problems
        }


@dataclass(frozen=True, kw_only=True)
class ChainOf:
    """Two chains of one length on one problem."""

    num_steps: int
    problem: int
    num_batches: int
    max_members: int = 15

    @property
    def variant(self) -> Variant:
        """The agent."""
        return chain_variant(self.num_steps)
