"""Tiers: the same code at three sizes. Each tier is a function from a configuration to a configuration."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .configs import (
    Ablation,
    ActiveLearning,
    AgentSummary,
    Bandits,
    BNNsAsENNs,
    Chains,
    Config,
    Curves,
    Departures,
    EnnRabbitDuck,
    EpinetDiagram,
    EpinetTraining,
    ImageStudy,
    LinearGaussianEpinet,
    MarginalsInsufficient,
    RabbitDuck,
    Scaling,
    Sets,
    ShortfallBound,
    Thesis,
)
from .configs.decisions import BanditSize, thesis_variants
from .configs.image_paper import full_protocol
from .configs.images import Protocol
from .configs.testbed import ABLATIONS, BALANCED, departure_variants, scaling_variants, variant_of

_FEW = (variant_of("mlp"), variant_of("epinet"), variant_of("ensemble", num_particles=3))

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
    AgentSummary: {},
    Scaling: {"variants": _FEW, "problems": (16, 17), "num_batches": 20},
    Ablation: {
        "rows": (("prior scale", ((("prior_scale", 0.0),),)),),
        "problems": (16, 17),
        "num_batches": 20,
    },
    # Another initialization is trained by the same program.
    Departures: {
        "variants": (_FEW[1], variant_of("epinet", initializer="truncated_normal")),
        "problems": (16, 17),
        "num_batches": 20,
    },
    Curves: {
        "variants": _FEW[1:2],
        "problems": (16, 17),
        "taus": (1, 10),
        "num_samples": (10, 100),
        "num_batches": 20,
    },
    Chains: {"problems": (16, 17), "num_steps": (500, 1000), "num_batches": 20},
    LinearGaussianEpinet: {
        "num_data": (20,),
        "index_dims": (4, 16, 64, 256),
        "num_seeds": 400,
        "num_batches": 4,
        "training": EpinetTraining(index_dims=(8,), descent_steps=300, num_steps=(2000,), num_seeds=4),
    },
    Bandits: {
        "bandits": ("neural",),
        "variants": _FEW,
        "rules": ("greedy",),
        "size": BanditSize(num_steps=40, num_runs=2, num_actions=5, pooling=4, batch_size=4, num_points=4),
    },
    ActiveLearning: {
        "acquisitions": ("uniform", "bald"),
        "num_runs": 2,
        "num_rounds": 2,
        "num_steps": 50,
        "num_samples": 10,
        "num_pool": 200,
        "num_targets": 10,
        "level": 0.5,
    },
    Thesis: {
        "variants": _FEW,
        "input_dims": (2,),
        "temperatures": (0.1,),
        "num_problems": 2,
        "num_batches": 20,
        "num_actions": 5,
        "num_steps": 20,
        "batch_size": 4,
    },
    Sets: {
        "variants": _FEW[:2],
        "temperatures": (0.1,),
        "num_problems": 2,
        "num_pools": 2,
        "num_candidates": 4,
        "copies": (1, 2),
        "set_size": 2,
        "num_samples": 50,
    },
}

_LAPTOP: Mapping[type, Mapping[str, Any]] = {
    RabbitDuck: {"num_samples": 100_000},
    EnnRabbitDuck: {},
    EpinetDiagram: {},
    MarginalsInsufficient: {"num_replicas": 10_000},
    ShortfallBound: {"num_problems": 10_000, "num_points": 40, "num_starts": 40, "num_steps": 400},
    BNNsAsENNs: {"num_samples": 20_000, "num_tested": 400, "num_replicates": 10},
    AgentSummary: {},
    Scaling: {
        "variants": scaling_variants((3, 10), chain=20_000),
        "long_chain": 20_000,
        "problems": BALANCED,
        "num_batches": 300,
    },
    Ablation: {
        # One value where the paper says that it does not matter, both ends of the sweep elsewhere.
        "rows": tuple((name, row[-1:] if "hidden" in name else row[:1] + row[-1:]) for name, row in ABLATIONS),
        "problems": (71, 72, 91, 92),
        "num_batches": 300,
    },
    Departures: {"variants": departure_variants(chain=20_000), "problems": (71, 72, 91, 92), "num_batches": 300},
    Curves: {
        "variants": (_FEW[1], *(variant_of(name, num_particles=10) for name in ("ensemble", "ensemble+"))),
        "problems": (91, 92),
        "num_samples": (10, 100, 1000),
        "num_batches": 200,
    },
    Chains: {"problems": (71, 91), "num_steps": (2000, 20_000)},
    LinearGaussianEpinet: {"num_seeds": 200, "training": EpinetTraining(num_steps=(300, 3000), num_seeds=8)},
    Bandits: {
        "matched": ("neural",),
        "with_rules": ("neural",),
        "size": BanditSize(num_steps=1000, num_runs=8, num_actions=50, pooling=2, batch_size=32),
    },
    ActiveLearning: {
        "num_runs": 5,
        "num_rounds": 9,
        "num_steps": 300,
        "num_pool": 400,
        "num_targets": 25,
        "level": 0.8,
    },
    Thesis: {
        "variants": thesis_variants((3, 10)),
        "input_dims": (10,),
        "num_problems": 6,
        "num_batches": 200,
        "num_actions": 50,
        "num_steps": 500,
        "batch_size": 32,
    },
    Sets: {
        "variants": (variant_of("epinet"), variant_of("ensemble", num_particles=10), variant_of("mlp")),
        "num_problems": 16,
        "num_pools": 4,
    },
}


def _small(protocol: Protocol) -> Protocol:
    """Return a protocol of two sizes, few particles and few steps."""
    short = {"epochs": 2, "batch_size": 50}
    return replace(
        protocol,
        num_train=200,
        num_validation=100,
        num_test=100,
        sizes=protocol.sizes[:2],
        training=replace(protocol.training, **short),
        epinet=replace(protocol.epinet, training=replace(protocol.epinet.training, **short)),
        ensemble_sizes=(1, 3),
        sample_counts=(10, 1000),
        num_augmented=20,
        ablation=(("matched prior scale", (0.0, 5.0)), ("temperature", (0.5,))) if protocol.ablation else (),
        # Another one would compile the same programs in another process.
        num_seeds=1,
    )


def smoke(config: Config) -> Config:
    """Return the configuration that proves the wiring in seconds."""
    if isinstance(config, ImageStudy):
        return replace(config, protocol=_small(config.protocol))
    return replace(config, **_SMOKE[type(config)])


def laptop(config: Config) -> Config:
    """Return the configuration that shows the claims in minutes on two cores."""
    # An image protocol is written at this size.
    return config if isinstance(config, ImageStudy) else replace(config, **_LAPTOP[type(config)])


def paper(config: Config) -> Config:
    """Return the configuration at full size, which is as it is written."""
    # But for an image protocol, which is written as what a laptop can do.
    return replace(config, protocol=full_protocol(config.full)) if isinstance(config, ImageStudy) else config


def replication(config: Config) -> Config:
    """Return the configuration for real data that the command line names, which is as it is written."""
    return config


SIZES: Mapping[str, Callable[[Config], Config]] = {"smoke": smoke, "laptop": laptop, "paper": paper}
"""The tiers that most artifacts have."""

TIERS: Mapping[str, Callable[[Config], Config]] = {**SIZES, "replication": replication}
