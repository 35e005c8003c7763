"""Configurations of the artifacts about decisions (beyond the paper; Appendix B is what they are about)."""

from collections.abc import Mapping
from dataclasses import dataclass

from .abstract import unit_of
from .testbed import Variant, variant_of

BANDITS = ("linear", "neural", "digits")
RULES = ("ucb", "ids", "greedy", "epsilon-greedy")
"""The rules beside Thompson sampling, which all agents act by."""

HEAD = "pitman-yor"
"""A conventional network that acts through a Pitman-Yor head, beside the agents of the testbed."""

THROUGH_HEAD = Variant(label=HEAD, agent=HEAD, changes=(("alpha", 0.1), ("length_scale", 1.0)))
"""The head: its aleatoric share, and how far knowledge reaches in standardized inputs."""

ACQUISITIONS = ("uniform", "variance", "entropy", "margin", "bald", "batch-bald", "epig", "joint-loss")


def bandit_variants(sizes: tuple[int, ...], plus: int) -> tuple[Variant, ...]:
    """Return the agents of the bandits: ensembles of these sizes, and one with prior functions."""
    ensembles = tuple(variant_of("ensemble", num_particles=size) for size in sizes)
    plus_variant = variant_of("ensemble+", num_particles=plus)
    return (variant_of("epinet"), *ensembles, plus_variant, variant_of("dropout"), variant_of("mlp"))


@dataclass(frozen=True, kw_only=True)
class BanditSize:
    """How large the bandits are, and how long they run; by default as in the authors' bandit.

    Attributes:
        num_steps: number of steps.
        num_runs: number of runs, each with its own environment and agent.
        actions_per_dim: actions of the linear and the neural bandit, over their dimension.
        input_dim: features of an action of these.
        pooling: side of the squares of pixels that images are averaged over; 1 leaves them as they are.
        batch_size: number of observations of an update.
        num_points: number of points of a regret curve.
    """

    num_steps: int = 10_000
    num_runs: int = 20
    actions_per_dim: int = 50
    input_dim: int = 10
    pooling: int = 1
    batch_size: int = 128
    num_points: int = 20

    @property
    def num_actions(self) -> int:
        """The number of actions of the linear and the neural bandit."""
        return self.actions_per_dim * self.input_dim


@dataclass(frozen=True, kw_only=True)
class BanditOf:
    """One agent with one rule in one bandit.

    Attributes:
        bandit: one of `BANDITS`, or "fashion", whose data the command line names.
        variant: the agent.
        rule: how it acts.
        compute: "equal" for updates on batches of the same size, "matched" for batches so large that the operations on
            examples are those of the epinet.
        size: sizes of everything.
    """

    bandit: str
    variant: Variant
    rule: str
    compute: str
    size: BanditSize


@dataclass(frozen=True, kw_only=True)
class Bandits:
    """Regret of agents and of rules.

    Attributes:
        bandits: some of `BANDITS`, or "fashion" alone.
        variants: the agents.
        matched: the bandits in which they are also compared at matched compute.
        rules: rules of the epinet beside Thompson sampling.
        with_rules: the bandits in which these are compared.
        size: sizes of everything.
    """

    bandits: tuple[str, ...] = BANDITS
    variants: tuple[Variant, ...] = bandit_variants((3, 10, 30), 10)
    matched: tuple[str, ...] = BANDITS
    rules: tuple[str, ...] = RULES
    with_rules: tuple[str, ...] = BANDITS
    size: BanditSize = BanditSize()

    def units(self) -> Mapping[str, BanditOf]:
        """Return one run per bandit, agent, rule and kind of compute; the epinet is the same at both kinds.

        A head is a classifier: it has no place in the linear bandit.
        """
        found = {}
        for bandit in self.bandits:
            for variant in self.variants:
                if variant.agent == HEAD and bandit == "linear":
                    continue
                again = bandit in self.matched and variant.agent != "epinet"
                for compute in ("equal", "matched") if again else ("equal",):
                    found[f"{bandit}-{variant.label}-{compute}"] = BanditOf(
                        bandit=bandit, variant=variant, rule="thompson", compute=compute, size=self.size
                    )
            for rule in self.rules if bandit in self.with_rules else ():
                found[f"{bandit}-epinet-{rule}"] = BanditOf(
                    bandit=bandit, variant=variant_of("epinet"), rule=rule, compute="equal", size=self.size
                )
        return found


@dataclass(frozen=True, kw_only=True)
class ActiveOf:
    """Active learning on digits with one rule of acquisition; attributes as in `ActiveLearning`."""

    acquisition: str
    num_runs: int
    per_class: int
    num_rounds: int
    round_size: int
    num_steps: int
    num_samples: int
    num_pool: int
    num_targets: int
    level: float


@dataclass(frozen=True, kw_only=True)
class ActiveLearning:
    """How many labels an epinet needs to read digits.

    Attributes:
        acquisitions: some of `ACQUISITIONS`; the first is what the others are compared with.
        num_runs: number of runs, each with its own split of the digits.
        per_class: labels of each class at the start.
        num_rounds: how often labels are asked for.
        round_size: how many in a round.
        num_steps: training steps of a round.
        num_samples: number of indices of a score.
        num_pool: size of the pool; the other digits are for testing.
        num_targets: inputs of the pool that the expected predictive information is about.
        level: the accuracy that labels are counted up to.
    """

    acquisitions: tuple[str, ...] = ACQUISITIONS
    num_runs: int = 20
    per_class: int = 1
    num_rounds: int = 19
    round_size: int = 10
    num_steps: int = 1000
    num_samples: int = 100
    num_pool: int = 1297
    num_targets: int = 100
    level: float = 0.9

    def units(self) -> Mapping[str, ActiveOf]:
        """Return one run per rule of acquisition."""
        return {name: unit_of(ActiveOf, self, acquisition=name) for name in self.acquisitions}


def thesis_variants(sizes: tuple[int, ...]) -> tuple[Variant, ...]:
    """Return agents that differ in what they know jointly, cheap ones first.

    All that are trained by Algorithm 1, with other scales of priors and other rates of dropout: a correlation over
    few agents says little, and these cost little.

    Args:
        sizes: sizes of the ensembles.
    """
    scales = tuple(variant_of("epinet", prior_scale=value) for value in (0.0, 0.1, 1.0, 3.0))
    rates = tuple(variant_of("dropout", rate=value) for value in (0.3, 0.5))
    plus = tuple(variant_of("ensemble+", num_particles=sizes[0], prior_scale=value) for value in (1.0, 10.0))
    ensembles = tuple(variant_of(name, num_particles=size) for size in sizes for name in ("ensemble", "ensemble+"))
    named = tuple(variant_of(name) for name in ("mlp", "epinet", "dropout"))
    return (*named, *scales, *rates, *plus, *ensembles, variant_of("bbb"), variant_of("hypermodel"))


def _later_variants() -> tuple[Variant, ...]:
    """Return the agents that follow the first 22 of `many_variants`."""
    epinets = tuple(variant_of("epinet", decay=value) for value in (0.02, 2.0))
    decays = tuple(
        variant_of(name, num_particles=3, decay=value) for value in (0.1, 10.0) for name in ("ensemble", "ensemble+")
    )
    dropouts = tuple(variant_of("dropout", decay=value) for value in (0.1, 10.0))
    wide = tuple(variant_of("bbb", prior_std=value) for value in (2.0, 4.0))
    return (
        variant_of("bbb"),
        *epinets,
        *decays,
        *dropouts,
        *wide,
        variant_of("epinet", decay=20.0),
        variant_of("epinet", index_dim=16),
        variant_of("ensemble+", num_particles=10, prior_scale=1.0),
        variant_of("dropout", rate=0.05),
    )


def many_variants() -> tuple[Variant, ...]:
    """Return many agents that cost little, for a correlation whose error is mostly that of the number of agents.

    Small ensembles, other rates and decays of the authors' sweeps, other index dimensions, prior scales and decays of
    Figure 9. Later ones were added when the numbers of those before were known, and before their own were; the
    hypermodel, which takes as long as several others, would have been the last, and was stopped by the clock.
    """
    networks = (variant_of("mlp"), *(variant_of("mlp", decay=value) for value in (0.1, 10.0)))
    sizes = tuple(variant_of("epinet", index_dim=value) for value in (1, 2, 4))
    scales = tuple(variant_of("epinet", prior_scale=value) for value in (0.0, 1.0, 3.0))
    rates = tuple(variant_of("dropout", rate=value) for value in (0.3, 0.5, 0.7))
    small = tuple(variant_of(name, num_particles=size) for size in (2, 3) for name in ("ensemble", "ensemble+"))
    plus = tuple(variant_of("ensemble+", num_particles=3, prior_scale=value) for value in (1.0, 10.0))
    large = tuple(variant_of(name, num_particles=10) for name in ("ensemble", "ensemble+"))
    return (
        *networks,
        variant_of("epinet"),
        variant_of("dropout"),
        *small,
        *rates,
        *sizes,
        *plus,
        *scales,
        *large,
        *_later_variants(),
    )


@dataclass(frozen=True, kw_only=True)
class ThesisOf:
    """One agent on the problems of one setting, as a predictor and as the agent of a bandit; see `Thesis`."""

    variant: Variant
    input_dim: int
    temperature: float
    data_ratio: int
    num_problems: int
    num_batches: int
    actions_per_dim: int
    num_steps: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class Thesis:
    """Whether divergences of predictions tell how well an agent will decide.

    Attributes:
        variants: the agents.
        input_dims: input dimensions of the testbed's problems.
        temperatures: their temperatures.
        data_ratio: their number of training examples over the dimension.
        num_problems: problems of each setting; each is also a bandit whose rewards are labels of the same true model.
        num_batches: pairs of anchors that a divergence is averaged over.
        actions_per_dim: actions of a bandit over its dimension.
        num_steps: steps in a bandit.
        batch_size: number of observations of an update.
    """

    variants: tuple[Variant, ...] = thesis_variants((3, 10, 30))
    input_dims: tuple[int, ...] = (2, 10)
    temperatures: tuple[float, ...] = (0.01, 0.1, 0.5)
    data_ratio: int = 10
    num_problems: int = 20
    num_batches: int = 1000
    actions_per_dim: int = 50
    num_steps: int = 10_000
    batch_size: int = 128

    def units(self) -> Mapping[str, ThesisOf]:
        """Return one run per agent and setting."""
        return {
            f"{variant.label}-d{input_dim}-rho{temperature:g}": unit_of(
                ThesisOf, self, variant=variant, input_dim=input_dim, temperature=temperature
            )
            for variant in self.variants
            for input_dim in self.input_dims
            for temperature in self.temperatures
        }
