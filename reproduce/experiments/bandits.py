"""Regret of agents and of rules in linear, neural and classification bandits."""

import functools as ft
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Int, PRNGKeyArray, Shaped

from epinet_eqx import named_keys
from epinet_eqx.bandits import (
    AbstractBandit,
    ClassificationBandit,
    ENNAgent,
    LinearBandit,
    NeuralBandit,
    run_bandits,
)
from epinet_eqx.data import digits
from epinet_eqx.pitman_yor import FourierField, OnMean

from ..configs.decisions import HEAD, BanditOf, BanditSize
from ..configs.testbed import variant_of
from ..record import Row
from .decision_agents import bandit_agent, example_flops, knowledge_of

# The middle one of the testbed's temperatures.
_TEMPERATURE = 0.1
# Rewards of the linear bandit have a variance of one: at this temperature so have the prior functions of the epinet.
_LINEAR_TEMPERATURE = 1 / 3
_NOISE_SCALE = 0.3


class LinearEnvironment(eqx.Module):
    """Draws the linear bandit of a run."""

    size: BanditSize = eqx.field(static=True)

    def __call__(self, key: PRNGKeyArray) -> LinearBandit:
        """Return the bandit."""
        return LinearBandit.generate(self.size.input_dim, self.size.num_actions, _NOISE_SCALE, key=key)


class NeuralEnvironment(eqx.Module):
    """Draws the neural bandit of a run."""

    size: BanditSize = eqx.field(static=True)

    def __call__(self, key: PRNGKeyArray) -> NeuralBandit:
        """Return the bandit."""
        return NeuralBandit.generate(self.size.input_dim, self.size.num_actions, _TEMPERATURE, key=key)


def image_bandit(
    images: Shaped[np.ndarray, "examples side side"], y: Int[np.ndarray, " examples"], pooling: int
) -> ClassificationBandit:
    """Return the bandit of images, the same for all runs, with pixels averaged over squares and standardized."""
    side = images.shape[1] // pooling
    pooled = images.reshape(-1, side, pooling, side, pooling).mean(axis=(2, 4))
    features = pooled.reshape(len(pooled), -1)
    features = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6)
    return ClassificationBandit(features, y)


@ft.cache
def digit_bandit(pooling: int) -> ClassificationBandit:
    """Return the bandit of all digits."""
    parts = [digits("train"), digits("test")]
    images = np.concatenate([part.x for part in parts])[:, 0]
    return image_bandit(images, np.concatenate([part.y for part in parts]), pooling)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where agents act, and what they know of it."""

    environment: AbstractBandit | LinearEnvironment | NeuralEnvironment
    input_dim: int
    num_outputs: int
    temperature: float
    noise_scale: float | None = None


def place_of_images(bandit: ClassificationBandit) -> Place:
    """Return the place of a bandit of images."""
    return Place(environment=bandit, input_dim=bandit.input_dim, num_outputs=2, temperature=_TEMPERATURE)


def find_place(bandit: str, size: BanditSize) -> Place:
    """Return the place of a bandit that needs no data but what is installed."""
    if bandit == "linear":
        return Place(
            environment=LinearEnvironment(size),
            input_dim=size.input_dim,
            num_outputs=1,
            temperature=_LINEAR_TEMPERATURE,
            noise_scale=_NOISE_SCALE,
        )
    if bandit == "neural":
        environment = NeuralEnvironment(size)
        return Place(environment=environment, input_dim=size.input_dim, num_outputs=2, temperature=_TEMPERATURE)
    return place_of_images(digit_bandit(size.pooling))


def _make_learner(config: BanditOf, place: Place, batch_size: int, view: OnMean | None = None) -> ENNAgent:
    """Return an agent of the testbed, or a conventional network that acts through a Pitman-Yor head, its `view`."""
    return bandit_agent(
        variant_of("mlp") if config.variant.agent == HEAD else config.variant,
        knowledge_of(place.input_dim, place.num_outputs, place.temperature),
        config.rule,
        batch_size=batch_size,
        noise_scale=place.noise_scale,
        view=view,
    )


_NUM_FREQUENCIES = 100
_FIELD_ROUNDS = 20


def head_field(place: Place, length_scale: float, *, key: PRNGKeyArray) -> FourierField:
    """Return the field of a head over the inputs of actions, standardized by those of some rounds."""
    environment_key, round_key, field_key = named_keys(key, "environment", "rounds", "field")
    environment = place.environment
    if not isinstance(environment, AbstractBandit):
        environment = environment(environment_key)
    rounds = [environment.round(key=own).inputs for own in jr.split(round_key, _FIELD_ROUNDS)]
    return FourierField(jnp.concatenate(rounds), _NUM_FREQUENCIES, length_scale=length_scale, key=field_key)


def make_agent(config: BanditOf, place: Place, batch_size: int, *, key: PRNGKeyArray) -> ENNAgent:
    """Return the agent of a run: one of the testbed, or a conventional network that acts through a Pitman-Yor head.

    Args:
        config: the run.
        place: where it acts.
        batch_size: number of observations of an update.
        key: random key of the head.
    """
    if config.variant.agent != HEAD:
        return _make_learner(config, place, batch_size)
    changes = dict(config.variant.changes)
    view = OnMean(head_field(place, changes["length_scale"], key=key), alpha=changes["alpha"])
    return _make_learner(config, place, batch_size, view)


def batch_size_of(config: BanditOf, place: Place) -> int:
    """Return the number of observations of an update: the declared one, or as many as the epinet's operations allow."""
    if config.compute == "equal":
        return config.size.batch_size
    epinet = replace(config, variant=variant_of("epinet"))
    own, allowed = (
        example_flops(lambda size, c=c: _make_learner(c, place, size), place.input_dim) for c in (config, epinet)
    )
    return max(1, round(config.size.batch_size * allowed / own))


def groups(configs: Mapping[str, BanditOf]) -> list[list[str]]:
    """Return each run by itself: no two share a program, but all agents meet the same environments."""
    return [[name] for name in configs]


def run(configs: Sequence[BanditOf], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return the regret curve of one agent, and the regret of each of its runs."""
    (config,) = configs
    return [run_in(find_place(config.bandit, config.size), config, key=key)]


def run_in(place: Place, config: BanditOf, *, key: PRNGKeyArray) -> list[Row]:
    """Return the same of any place."""
    size = config.size
    own_key, head_key = named_keys(key, config.bandit, "head")
    batch_size = batch_size_of(config, place)
    agent = make_agent(config, place, batch_size, key=head_key)
    runs = run_bandits(agent, place.environment, num_steps=size.num_steps, keys=jr.split(own_key, size.num_runs))
    regret = np.asarray(runs.regret, dtype=float)
    common = {
        "bandit": config.bandit,
        "agent": config.variant.agent,
        "label": config.variant.label,
        "rule": config.rule,
        "compute": config.compute,
        "batch_size": batch_size,
    }
    steps = np.unique(np.linspace(1, size.num_steps, size.num_points + 1).round().astype(int))
    errors = regret.std(axis=0, ddof=1) / np.sqrt(size.num_runs)
    means = regret.mean(axis=0)
    rows: list[Row] = [
        {**common, "row": "curve", "step": int(step), "regret": means[step - 1], "error": errors[step - 1]}
        for step in steps
    ]
    rows += [
        {**common, "row": "run", "seed": seed, "step": size.num_steps, "regret": value}
        for seed, value in enumerate(regret[:, -1])
    ]
    return rows
