"""Tiers: the same code at three sizes. Each tier is a function from a configuration to a configuration."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .configs import (
    BNNsAsENNs,
    Config,
    EnnRabbitDuck,
    EpinetDiagram,
    EpinetTraining,
    LinearGaussianEpinet,
    MarginalsInsufficient,
    RabbitDuck,
    ShortfallBound,
)

_SMOKE: Mapping[type, Mapping[str, Any]] = {
    RabbitDuck: {"num_samples": 1000},
    EnnRabbitDuck: {"num_points": 40},
    EpinetDiagram: {"num_samples": 20},
    MarginalsInsufficient: {"taus": (2, 3), "num_replicas": 200, "num_samples": 8},
    ShortfallBound: {
        "taus": (2,),
        "num_actions": (8,),
        "num_problems": 500,
        "num_starts": 8,
        "num_steps": 60,
    },
    BNNsAsENNs: {
        "bnns": ("ensemble", "Bayes by backprop"),
        "num_samples": 2000,
        "num_tested": 200,
        "num_replicates": 8,
        "num_permutations": 199,
        "num_projections": 3,
        "counterexample_samples": 20_000,
    },
    LinearGaussianEpinet: {
        "num_data": (20,),
        "index_dims": (4, 16, 64, 256),
        "num_seeds": 400,
        "num_batches": 4,
        "training": EpinetTraining(index_dims=(8,), descent_steps=300, num_steps=(2000,), num_seeds=4),
    },
}

_LAPTOP: Mapping[type, Mapping[str, Any]] = {
    RabbitDuck: {"num_samples": 100_000},
    EnnRabbitDuck: {},
    EpinetDiagram: {},
    MarginalsInsufficient: {"num_replicas": 10_000},
    ShortfallBound: {"num_problems": 10_000, "num_points": 40, "num_starts": 40, "num_steps": 400},
    BNNsAsENNs: {"num_samples": 20_000, "num_tested": 400, "num_replicates": 10},
    LinearGaussianEpinet: {"num_seeds": 200, "training": EpinetTraining(num_steps=(300, 3000), num_seeds=8)},
}


def smoke(config: Config) -> Config:
    """Return the configuration that proves the wiring in seconds."""
    return replace(config, **_SMOKE[type(config)])


def laptop(config: Config) -> Config:
    """Return the configuration that shows the claims in minutes on two cores."""
    return replace(config, **_LAPTOP[type(config)])


def paper(config: Config) -> Config:
    """Return the configuration at full size, which is as it is written."""
    return config


TIERS: Mapping[str, Callable[[Config], Config]] = {"smoke": smoke, "laptop": laptop, "paper": paper}
