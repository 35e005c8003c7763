"""Designs by Thompson sampling: epinets, ensembles with priors, an exact Gaussian process, and chance."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.bandits import (
    AbstractBandit,
    AbstractBanditAgent,
    AbstractRule,
    ENNAgent,
    GaussianReward,
    Round,
    ThompsonSampling,
    run_bandits,
)

from ..artifacts.dec_designs import DesignsOf
from ..record import Row
from .decision_agents import InitialENN, bandit_loss, knowledge_of, sgd_agent

# Functions ----------------------------------------------------------------------------------------------------------

# Designs have unit variance, as networks expect.
_HALF_WIDTH = math.sqrt(3.0)
_NUM_MOMENTS = 100_000


def branin(u: Float[Array, "2"]) -> Float[Array, ""]:
    """Return Branin's function upside down, on the unit square; its three maxima are alike."""
    a, b = 15 * u[0] - 5, 15 * u[1]
    valley = b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6
    return -(valley**2 + 10 * (1 - 1 / (8 * math.pi)) * jnp.cos(a) + 10)


_HARTMANN_WIDTHS = (
    (10.0, 3.0, 17.0, 3.5, 1.7, 8.0),
    (0.05, 10.0, 17.0, 0.1, 8.0, 14.0),
    (3.0, 3.5, 1.7, 10.0, 17.0, 8.0),
    (17.0, 8.0, 0.05, 10.0, 0.1, 14.0),
)
_HARTMANN_CENTERS = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)
_HARTMANN_HEIGHTS = (1.0, 1.2, 3.0, 3.2)


def hartmann(u: Float[Array, "6"]) -> Float[Array, ""]:
    """Return Hartmann's function of six inputs upside down, on the unit cube: four hills."""
    distances = jnp.sum(jnp.asarray(_HARTMANN_WIDTHS) * (u[None, :] - jnp.asarray(_HARTMANN_CENTERS)) ** 2, axis=1)
    return jnp.sum(jnp.asarray(_HARTMANN_HEIGHTS) * jnp.exp(-distances))


class Surface(NamedTuple):
    """A function of the unit cube, with its largest value."""

    function: Callable[[Array], Array]
    num_dims: int
    largest: float


SURFACES = {"branin": Surface(branin, 2, -0.397887), "hartmann": Surface(hartmann, 6, 3.32237)}
"""The functions by their names in the configuration."""


class DesignBandit(AbstractBandit):
    """Each round offers new random designs of a box; the reward is the standardized value of the function."""

    mean: Float[Array, ""]
    scale: Float[Array, ""]
    name: str = eqx.field(static=True)
    num_candidates: int = eqx.field(static=True)

    def round(self, *, key: PRNGKeyArray) -> Round:
        """Draw the candidates."""
        surface = SURFACES[self.name]
        u = jr.uniform(key, (self.num_candidates, surface.num_dims))
        return Round(_HALF_WIDTH * (2 * u - 1), (jax.vmap(surface.function)(u) - self.mean) / self.scale)

    def reward(self, expected: Float[Array, ""], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Return the value, without noise."""
        return expected


def make_bandit(name: str, num_candidates: int) -> DesignBandit:
    """Return the bandit of a function, whose moments over the box are those of a fixed sample."""
    surface = SURFACES[name]
    u = np.random.default_rng(0).uniform(size=(_NUM_MOMENTS, surface.num_dims))
    values = np.asarray(jax.vmap(surface.function)(jnp.asarray(u, dtype=float)), dtype=float)
    return DesignBandit(jnp.asarray(values.mean(), float), jnp.asarray(values.std(), float), name, num_candidates)


def _only_best(values: Float[Array, " actions"]) -> Float[Array, " actions"]:
    """Return a probability of one for the largest value; NaN if a value is NaN."""
    return jax.nn.one_hot(jnp.argmax(values), values.shape[0]) + 0 * values


# Agents -------------------------------------------------------------------------------------------------------------


class ByChance(AbstractBanditAgent):
    """Chooses by chance, and learns nothing."""

    def init(self, inputs: Any, capacity: int, *, key: PRNGKeyArray) -> tuple[()]:
        """Return the state: none."""
        return ()

    def policy(self, state: tuple[()], inputs: Array, *, key: PRNGKeyArray) -> Float[Array, " actions"]:
        """Return equal probabilities."""
        return jnp.full(inputs.shape[0], 1 / inputs.shape[0])

    def observe(self, state: tuple[()], step: Array, x: Array, reward: Array, *, key: PRNGKeyArray) -> tuple[()]:
        """Return the state."""
        return state

    def check_rewards(self, rewards: Float[Array, "*steps"]) -> Float[Array, "*steps"]:
        """Return the rewards."""
        return rewards


_LENGTHS = tuple(float(value) for value in np.geomspace(0.3, 6.0, 8))
# Of the variance of the process: single precision needs it.
_JITTER = 1e-4


def matern(
    x: Float[Array, "rows dims"], y: Float[Array, "columns dims"], length: Array
) -> Float[Array, "rows columns"]:
    """Return the Matern kernel with a smoothness of 5/2 and a variance of one."""
    squares = jnp.sum(x**2, axis=1)[:, None] + jnp.sum(y**2, axis=1)[None, :] - 2 * x @ y.T
    # The derivative of a root at zero is never needed: nothing is differentiated.
    r = jnp.sqrt(5 * jnp.maximum(squares, 0.0)) / length
    return (1 + r + r**2 / 3) * jnp.exp(-r)


class Known(NamedTuple):
    """Designs with their values; rows that were not observed have a mask of zero."""

    x: Float[Array, "rows dims"]
    y: Float[Array, " rows"]
    mask: Float[Array, " rows"]


class GaussianProcess(AbstractBanditAgent):
    """Thompson sampling by the exact joint posterior of all candidates.

    The length scale, one for all dimensions, is that of the largest marginal likelihood on a grid; for each of them the
    variance has its best value, with one observation of a variance of one added.
    """

    def init(self, inputs: Any, capacity: int, *, key: PRNGKeyArray) -> Known:
        """Return the state before the first observation."""
        return Known(jnp.zeros((capacity, inputs.shape[1])), jnp.zeros(capacity), jnp.zeros(capacity))

    def policy(self, state: Known, inputs: Array, *, key: PRNGKeyArray) -> Float[Array, " actions"]:
        """Return the best action of one sample."""
        count = jnp.sum(state.mask)
        outer = state.mask[:, None] * state.mask[None, :]

        def fitted(length: Array) -> tuple[Array, Array]:
            kernel = outer * matern(state.x, state.x, length) + jnp.diag(1 - state.mask + _JITTER)
            factor, _ = cho_factor(kernel, lower=True)
            variance = (state.y @ cho_solve((factor, True), state.y) + 1) / (count + 1)
            # Rows that were not observed add the same to all lengths.
            log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
            return factor, -0.5 * ((count + 1) * jnp.log(variance) + log_det)

        factors, evidence = jax.vmap(fitted)(jnp.asarray(_LENGTHS))
        best = jnp.argmax(evidence)
        factor, length = (factors[best], True), jnp.asarray(_LENGTHS)[best]
        solved = cho_solve(factor, state.y)
        variance = (state.y @ solved + 1) / (count + 1)
        cross = matern(inputs, state.x, length) * state.mask[None, :]
        covariance = matern(inputs, inputs, length) - cross @ cho_solve(factor, cross.T)
        root = jnp.linalg.cholesky(covariance + 10 * _JITTER * jnp.eye(len(inputs)))
        return _only_best(cross @ solved + jnp.sqrt(variance) * (root @ jr.normal(key, (len(inputs),))))

    def observe(self, state: Known, step: Int[Array, ""], x: Array, reward: Array, *, key: PRNGKeyArray) -> Known:
        """Add an observation."""
        return Known(state.x.at[step].set(x), state.y.at[step].set(reward), state.mask.at[step].set(1.0))

    def check_rewards(self, rewards: Float[Array, "*steps"]) -> Float[Array, "*steps"]:
        """Return the rewards."""
        return rewards


class ApartSampling(AbstractRule):
    """Incoherent Thompson sampling: neighbors in the list of candidates have indices of their own."""

    num_samples: int = eqx.field(static=True)

    def probs(self, rewards: Float[Array, "samples actions"]) -> Float[Array, " actions"]:
        """Choose the best of all, each at its own sample."""
        columns = jnp.arange(rewards.shape[1])
        return _only_best(rewards[columns % rewards.shape[0], columns])


# A regression needs a scale of noise to weigh its penalty; these functions have none.
_NOISE_SCALE = 0.1
# At this temperature the prior functions of the epinet have the variance of the rewards.
_TEMPERATURE = 1 / 3
_NUM_APART = 100
_ADAM = optax.adam(1e-3)


def make_agent(config: DesignsOf) -> AbstractBanditAgent:
    """Return an agent by its name in the configuration."""
    if config.agent == "chance":
        return ByChance()
    if config.agent == "gp":
        return GaussianProcess()
    agent = sgd_agent(config.variant)
    knowledge = knowledge_of(SURFACES[config.surface].num_dims, 1, _TEMPERATURE)
    finite = config.variant.agent in ("ensemble", "ensemble+")
    return ENNAgent(
        InitialENN(agent, knowledge),
        bandit_loss(agent, knowledge, _NOISE_SCALE),
        GaussianReward(),
        ApartSampling(_NUM_APART) if config.agent == "apart" else ThompsonSampling(),
        optimizer=_ADAM,
        num_updates=config.num_updates,
        num_index_samples=None if finite else agent.plan(knowledge.input_dim, 1).num_index_samples,
    )


def groups(configs: Mapping[str, DesignsOf]) -> list[list[str]]:
    """Return each run by itself: no two share a program, but all agents see the same candidates."""
    return [[name] for name in configs]


def run(configs: Sequence[DesignsOf], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return how far the best design so far is below the maximum, after each evaluation of each run."""
    (config,) = configs
    (own_key,) = named_keys(key, config.surface)
    bandit = make_bandit(config.surface, config.num_candidates)
    keys = jr.split(own_key, config.num_runs)
    runs = run_bandits(make_agent(config), bandit, num_steps=config.num_evaluations, keys=keys)
    largest = (SURFACES[config.surface].largest - float(bandit.mean)) / float(bandit.scale)
    gaps = largest - np.maximum.accumulate(np.asarray(runs.rewards, dtype=float), axis=1)
    steps = np.unique(np.linspace(1, config.num_evaluations, config.num_points + 1).round().astype(int))
    return [
        [
            {
                "surface": config.surface,
                "agent": config.agent,
                "seed": seed,
                "evaluations": int(step),
                "gap": gaps[seed, step - 1],
            }
            for seed in range(config.num_runs)
            for step in steps
        ]
    ]
