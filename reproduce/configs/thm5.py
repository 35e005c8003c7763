"""Configuration of Theorem 5: the Pitman-Yor head."""

from collections.abc import Mapping
from dataclasses import dataclass

from .abstract import unit_of


@dataclass(frozen=True, kw_only=True)
class UrnIdentities:
    """Theorem 5: what has a closed form, by two routes.

    Attributes:
        alphas: aleatoric shares of the quadratures and enumerations.
        table_alphas: aleatoric shares of the tables that are drawn.
        max_labels: number of labels up to which all labelings and all partitions are enumerated.
        num_labels: number of labels of the quadrature.
        num_points: points per axis of the quadrature over the two Gaussian variables of the noise.
    """

    alphas: tuple[float, ...]
    table_alphas: tuple[float, ...]
    max_labels: int
    num_labels: int
    num_points: int


@dataclass(frozen=True, kw_only=True)
class UrnSamples:
    """Theorem 5 at one aleatoric share, by samples of the ENN.

    Attributes:
        alpha: the aleatoric share.
        num_samples: index samples.
    """

    alpha: float
    num_samples: int


@dataclass(frozen=True, kw_only=True)
class ExactMarginals:
    """Theorem 5: an ENN whose marginals are exactly its base's, and whose labels follow an urn."""

    alphas: tuple[float, ...] = (0.05, 0.2, 0.5, 0.8)
    table_alphas: tuple[float, ...] = (0.001, 0.25, 0.5, 0.75, 1.0)
    max_labels: int = 6
    num_labels: int = 10
    num_points: int = 2001
    num_samples: int = 2_000_000

    def units(self) -> Mapping[str, UrnIdentities | UrnSamples]:
        """Return the identities, and one run of samples per aleatoric share."""
        identities = unit_of(UrnIdentities, self)
        samples = {f"samples-{alpha:g}": UrnSamples(alpha=alpha, num_samples=self.num_samples) for alpha in self.alphas}
        return {"identities": identities, **samples}
