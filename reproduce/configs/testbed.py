"""Configurations of the Neural Testbed's artifacts (Section 5, Appendix F)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .abstract import unit_of

Changes = tuple[tuple[str, Any], ...]
"""Fields of an agent with other values than its tuned ones."""

ENSEMBLE_SIZES = (1, 3, 10, 30, 100)
PAPER_CHAIN = 100_000
"""Steps of `sgmcmc` at tier `paper` where data are few; `testbed_chains` tells from where on that is too short."""

TUNED_CHAIN = 500_000
"""Steps of `sgmcmc` as tuned."""

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


def _scores(pairs: Iterable[tuple[Variant, int]], num_batches: int) -> Mapping[str, Score]:
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
        return _scores(pairs, self.num_batches)


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
        return _scores(((variant, problem) for variant in variants for problem in self.problems), self.num_batches)


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
        return _scores(pairs, self.num_batches)


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
