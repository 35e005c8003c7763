"""Configuration of Theorem 3."""

from collections.abc import Mapping
from dataclasses import dataclass

from .abstract import unit_of


@dataclass(frozen=True, kw_only=True)
class BNNAgreement:
    """Theorem 3, first part, for one kind of BNN: sampled directly, and as an ENN.

    Attributes:
        bnn: which BNN, a name in `experiments.bnns.BNNS`.
        tau: number of inputs of a joint prediction.
        num_samples: samples of each side for the tables of joint probabilities.
        num_tested: samples of each side in a two-sample test.
        num_replicates: how many tests, each with samples of its own; together at most `num_samples`.
        num_permutations: permutations of a test by energy distance.
        num_projections: directions of a test by Kolmogorov-Smirnov distance along random directions.
    """

    bnn: str
    tau: int
    num_samples: int
    num_tested: int
    num_replicates: int
    num_permutations: int
    num_projections: int


@dataclass(frozen=True, kw_only=True)
class CounterExample:
    """Theorem 3, second part: an ENN that no BNN expresses.

    Attributes:
        in_dim: size of the input.
        shift: the parameter that multiplies the index.
        num_inputs: number of inputs through which linear functions are fitted.
        num_samples: sampled functions.
        num_lines: functions of one input that are kept for the figure.
    """

    in_dim: int
    shift: float
    num_inputs: int
    num_samples: int
    num_lines: int


@dataclass(frozen=True, kw_only=True)
class BNNsAsENNs:
    """Theorem 3: every BNN is an ENN, and not every ENN is a BNN."""

    bnns: tuple[str, ...] = (
        "ensemble",
        "ensemble+",
        "posterior samples",
        "dropout",
        "Bayes by backprop",
        "linear hypermodel",
        "diagonal hypermodel",
        "last-layer Laplace",
        "SWAG",
        "transport map",
    )
    tau: int = 3
    num_samples: int = 200_000
    num_tested: int = 1000
    num_replicates: int = 20
    num_permutations: int = 999
    num_projections: int = 10
    in_dim: int = 3
    shift: float = 0.7
    num_inputs: int = 8
    counterexample_samples: int = 100_000
    num_lines: int = 8

    def units(self) -> Mapping[str, BNNAgreement | CounterExample]:
        """Return one run per kind of BNN, and the counter-example."""
        agreements = {
            bnn.lower().replace(" ", "_").replace("+", "_plus"): unit_of(BNNAgreement, self, bnn=bnn)
            for bnn in self.bnns
        }
        counter_example = unit_of(CounterExample, self, num_samples=self.counterexample_samples)
        return {**agreements, "counterexample": counter_example}
