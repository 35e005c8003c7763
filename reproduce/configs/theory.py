"""Configurations of the theory artifacts."""

from collections.abc import Mapping
from dataclasses import dataclass

from .abstract import unit_of


@dataclass(frozen=True, kw_only=True)
class RabbitDuck:
    """Figure 1: one drawing, two labels, two ENNs.

    Attributes:
        logit_gap: difference of the logits where an ENN is certain; 40 nats are a certainty in single precision.
        num_samples: index samples of the Monte Carlo tables that stand beside the exact ones.
    """

    logit_gap: float = 40.0
    num_samples: int = 1_000_000

    def units(self) -> Mapping[str, "RabbitDuck"]:
        """Return the one run."""
        return {"tables": self}


@dataclass(frozen=True, kw_only=True)
class EnnRabbitDuck:
    """Figure 3: the outputs of the two ENNs as functions of the index, and their tables.

    Attributes:
        logit_gap: difference of the logits where an ENN is certain.
        z_max: the index is drawn from `-z_max` to `z_max`.
        num_points: points of the curves, an even number so that none is zero.
        table_indices: the indices whose tables are shown.
    """

    logit_gap: float = 40.0
    z_max: float = 3.0
    num_points: int = 400
    table_indices: tuple[float, ...] = (-1.5, 1.5)

    def units(self) -> Mapping[str, "EnnRabbitDuck"]:
        """Return the one run."""
        return {"outputs": self}


@dataclass(frozen=True, kw_only=True)
class EpinetDiagram:
    """Figure 4: an epinet with the sizes of the Neural Testbed (Appendix F.3), taken apart.

    Attributes:
        in_dim: size of the input.
        num_classes: number of classes.
        hidden: hidden layers of the base network.
        index_dim: dimension of the index.
        epinet_hidden: hidden layers of the learnable epinet, and of the prior that matches it.
        prior_hidden: hidden layers of each member of the ensemble prior.
        prior_scale: scale of both priors.
        num_samples: index samples of the check that the base network runs once for all of them.
    """

    in_dim: int = 10
    num_classes: int = 2
    hidden: tuple[int, ...] = (50, 50)
    index_dim: int = 8
    epinet_hidden: tuple[int, ...] = (15, 15)
    prior_hidden: tuple[int, ...] = (5, 5)
    prior_scale: float = 0.3
    num_samples: int = 1000

    def units(self) -> Mapping[str, "EpinetDiagram"]:
        """Return the one run."""
        return {"structure": self}


@dataclass(frozen=True, kw_only=True)
class MarginalsInsufficientRun:
    """Theorem 1 at one `tau`.

    Attributes:
        tau: number of labels.
        logit_gap: difference of the logits where the ENN is certain.
        num_samples: label combinations that a Monte Carlo agent draws before it acts.
        num_replicas: how often a Monte Carlo agent acts.
    """

    tau: int
    logit_gap: float
    num_samples: int
    num_replicas: int


@dataclass(frozen=True, kw_only=True)
class MarginalsInsufficient:
    """Theorem 1: the decision problem in which marginals do not help."""

    taus: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9, 10)
    logit_gap: float = 40.0
    num_samples: int = 32
    num_replicas: int = 100_000

    def units(self) -> Mapping[str, MarginalsInsufficientRun]:
        """Return one run per `tau`."""
        return {f"tau{tau:02d}": unit_of(MarginalsInsufficientRun, self, tau=tau) for tau in self.taus}


@dataclass(frozen=True, kw_only=True)
class ShortfallProblems:
    """Theorem 2: random problems of one size.

    Attributes:
        tau: number of labels.
        num_classes: values of each label.
        num_actions: number of actions.
        num_problems: how many problems are drawn.
        num_points: how many of those with a shortfall are kept one by one, for the figure.
    """

    tau: int
    num_classes: int
    num_actions: int
    num_problems: int
    num_points: int


@dataclass(frozen=True, kw_only=True)
class ShortfallSearch:
    """Theorem 2: a search for problems that come close to the bound.

    Attributes:
        num_outcomes: number of label combinations.
        num_starts: how many searches, each for another shortfall.
        num_steps: steps of gradient descent.
    """

    num_outcomes: int
    num_starts: int
    num_steps: int


@dataclass(frozen=True, kw_only=True)
class ShortfallBound:
    """Theorem 2: the shortfall of many decision problems against the bound."""

    taus: tuple[int, ...] = (1, 2, 4)
    num_classes: int = 3
    num_actions: tuple[int, ...] = (2, 8, 64)
    num_problems: int = 1_000_000
    num_points: int = 100
    num_outcomes: int = 16
    num_starts: int = 200
    num_steps: int = 1000

    def units(self) -> Mapping[str, ShortfallProblems | ShortfallSearch]:
        """Return one run per size of problem, and the search."""
        problems = {
            f"tau{tau}_actions{actions:02d}": unit_of(ShortfallProblems, self, tau=tau, num_actions=actions)
            for tau in self.taus
            for actions in self.num_actions
        }
        search = unit_of(ShortfallSearch, self)
        return {**problems, "search": search}
