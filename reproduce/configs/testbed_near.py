"""Configuration of joint predictions of different inputs on the Neural Testbed."""

from collections.abc import Mapping
from dataclasses import dataclass

from .testbed import BALANCED, Variant, variant_of
from .testbed_head import units_of

ALPHAS = (0.1, 0.3, 0.6, 0.9)
LENGTH_SCALES = (0.1, 0.3, 1.0, 3.0)
CORRELATIONS = (0.0, 0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, kw_only=True)
class NearScore:
    """An agent's joint predictions of clusters of inputs on one problem: its own, and its mean through the field.

    Attributes:
        variant: the agent.
        problem: number of the problem, from 1 to 180.
        is_judged: whether the problem is that of all other artifacts; otherwise it is of the same setting, drawn with
            another key, and serves to choose `alpha` and the length scale.
        alphas: aleatoric shares.
        length_scales: how far knowledge reaches.
        correlations: of the inputs of a cluster; at 1 they are equal.
        num_clusters: number of clusters that the divergence is averaged over.
        cluster_size: number of inputs of a cluster, each with one label.
        num_samples: index samples.
        max_members: how many problems are trained at once, if they have the same shape.
    """

    variant: Variant
    problem: int
    is_judged: bool
    alphas: tuple[float, ...]
    length_scales: tuple[float, ...]
    correlations: tuple[float, ...]
    num_clusters: int
    cluster_size: int
    num_samples: int
    max_members: int = 15


@dataclass(frozen=True, kw_only=True)
class NearScaling:
    """Joint predictions of different inputs by several agents; attributes as in `NearScore`."""

    variants: tuple[Variant, ...] = (variant_of("mlp"), variant_of("epinet"), variant_of("ensemble+", num_particles=10))
    problems: tuple[int, ...] = BALANCED
    rule_problems: tuple[int, ...] = BALANCED
    alphas: tuple[float, ...] = ALPHAS
    length_scales: tuple[float, ...] = LENGTH_SCALES
    correlations: tuple[float, ...] = CORRELATIONS
    num_clusters: int = 500
    cluster_size: int = 2
    num_samples: int = 1000

    def units(self) -> Mapping[str, NearScore]:
        """Return one run per agent, problem and purpose."""
        return units_of("near", NearScore, self)
