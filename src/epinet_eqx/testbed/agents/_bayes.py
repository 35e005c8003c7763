"""The agent `bayes`: samples of the exact posterior over the true model, the limit of every other agent."""

import dataclasses
import functools as ft
import itertools
import math
from collections.abc import Hashable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from ..._enn import AbstractENN
from ...bayes import Ensemble
from ...losses import Batch
from .._problem import GenerativeModel, PriorKnowledge, Problem
from ._agent import AbstractAgent, check_group
from ._tempering import TemperedSamples, TemperingPlan, tempered_hmc

# The prior's weights end at two standard deviations of the normal distribution that is truncated.
_BOUND = 2.0

# Chains times examples that move at once: hidden layers then stay in the cache.
_MAX_ROWS = 4000


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesAgent(AbstractAgent):
    """The posterior of the generative model itself, which no agent of the paper knows.

    Averaged over the prior, no agent has a smaller divergence. Particle `i * num_samples + j` of the ensemble is sample
    `j` of chain `i`. Not one of `AGENTS`: an agent is to be compared with it.

    Attributes:
        num_chains: number of chains, which begin as particles of sequential Monte Carlo.
        num_samples: samples of each chain.
        moves_per_stage: moves at each temperature.
        burn_in: moves of each chain before its step size is frozen.
        thin: moves between samples.
        trajectory: mean length of a trajectory in standard deviations of the prior.
        max_leaps: most steps of a trajectory.
        acceptance: share of accepted moves that the step size aims at.
        effective_share: share of the particles that a change of the temperature leaves effective.
    """

    description: ClassVar[str] = "posterior of the generative model"
    hyperparameters: ClassVar[str] = "none: sizes of the sampler"

    num_chains: int = 128
    num_samples: int = 8
    moves_per_stage: int = 3
    burn_in: int = 8
    thin: int = 4
    trajectory: float = 1.0
    max_leaps: int = 32
    acceptance: float = 0.8
    effective_share: float = 0.7

    def group(self, input_dim: int, num_train: int) -> Hashable:
        """Return the sizes: the likelihood is that of data without padding."""
        return input_dim, num_train

    def train(self, problems: Problem, *, keys: Key[Array, " problems"]) -> AbstractENN:
        """Return samples of the posteriors as stacked ensembles."""
        return self.sample(problems, keys=keys)[0]

    def sample(self, problems: Problem, *, keys: Key[Array, " problems"]) -> tuple[Ensemble, TemperedSamples]:
        """Return samples of the posteriors as stacked ensembles, and the diagnostics of the sampling."""
        check_group(self, problems)
        size = int(problems.knowledge.num_train[0])
        data = jax.tree.map(lambda leaf: leaf[:, :size], problems.data)
        plan = TemperingPlan(**dataclasses.asdict(self), chunk=max(1, min(self.num_chains, _MAX_ROWS // size)))
        return _sample(plan, data, problems.knowledge, keys)


def _template(knowledge: PriorKnowledge, key: PRNGKeyArray) -> GenerativeModel:
    """Return a model of zeros with the shapes of the true one; nothing is drawn with the key."""
    make = ft.partial(GenerativeModel, knowledge.input_dim, knowledge.num_classes, 1.0)
    shapes = eqx.filter_eval_shape(lambda key: make(key=key), key)
    model = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf, shapes
    )
    return eqx.tree_at(lambda model: model.temperature, model, knowledge.temperature)


def _drawn(model: GenerativeModel) -> list[Any]:
    """Return the arrays that the prior draws: the weights, then the bias of the first layer."""
    layers = model.network.layers
    return [*(layer.weight for layer in layers), layers[0].bias]


def _scaled(template: GenerativeModel, position: Float[Array, " parameters"]) -> GenerativeModel:
    """Return the model whose drawn arrays are these standard numbers over the root of the fan-in."""
    arrays = _drawn(template)
    roots = [math.sqrt(leaf.shape[1]) for leaf in arrays[:-1]]
    parts = jnp.split(position, list(itertools.accumulate(leaf.size for leaf in arrays))[:-1])
    scaled = [
        part.reshape(leaf.shape) / root for part, leaf, root in zip(parts, arrays, [*roots, roots[0]], strict=True)
    ]
    return eqx.tree_at(_drawn, template, scaled)


def _logits(model: GenerativeModel, xs: Float[Array, "examples features"]) -> Float[Array, "classes examples"]:
    """Return the logits of all inputs, one column each; the model mapped over inputs would transpose every layer."""
    outputs = xs.T
    *hidden, last = model.network.layers
    for layer in hidden:
        outputs = jax.nn.relu(layer.weight @ outputs + layer.bias[:, None])
    return (last.weight @ outputs + last.bias[:, None]) / model.temperature


@eqx.filter_jit
def _sample(
    plan: TemperingPlan, data: Batch, knowledge: PriorKnowledge, keys: Key[Array, " problems"]
) -> tuple[Ensemble, TemperedSamples]:
    """Sample the posteriors of problems of one shape, one after the other: their chains are work enough."""
    arrays, rest = eqx.partition((data, knowledge), eqx.is_array)

    def member(args: tuple[Any, PRNGKeyArray]) -> tuple[Any, TemperedSamples]:
        data, known = eqx.combine(args[0], rest)
        template = _template(known, args[1])
        widths = [jnp.full(leaf.size, jnp.inf if leaf.ndim == 1 else _BOUND) for leaf in _drawn(template)]
        bounds = jnp.concatenate(widths)

        def log_likelihood(position: Float[Array, " parameters"]) -> Float[Array, ""]:
            log_probs = jax.nn.log_softmax(_logits(_scaled(template, position), data.x), axis=0)
            return jnp.sum(jnp.take_along_axis(log_probs, data.y[None], axis=0))

        found = tempered_hmc(log_likelihood, bounds, plan, key=args[1])
        positions = found.positions.reshape(-1, bounds.size)
        return jax.vmap(lambda position: eqx.filter(_scaled(template, position), eqx.is_array))(positions), found

    models, found = jax.lax.map(member, (arrays, keys))
    particles = eqx.combine(models, eqx.filter(_template(knowledge, keys[0]), eqx.is_array, inverse=True))
    return eqx.filter_vmap(Ensemble)(particles), found
