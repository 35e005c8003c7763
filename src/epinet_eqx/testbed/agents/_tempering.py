"""Sample a posterior by tempering: particles from the prior, moved by Hamiltonian Monte Carlo."""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._keys import named_keys

_MAX_STAGES = 500
_BISECTIONS = 30
# Step sizes follow the acceptance at this rate. Below the largest one, no step crosses the box of the prior.
_RATE = 0.3
_FIRST_STEP, _LARGEST_STEP = 0.2, 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class TemperingPlan:
    """The static numbers of a run.

    Attributes:
        num_chains: number of particles, which are chains from the last temperature on.
        num_samples: samples of each chain.
        moves_per_stage: moves at each temperature.
        burn_in: moves at the last temperature before the step size is frozen.
        thin: moves between samples.
        trajectory: mean length of a trajectory; standard deviations of the prior are one.
        max_leaps: most steps of a trajectory.
        acceptance: share of accepted moves that the step size aims at.
        effective_share: share of the particles that a change of the temperature leaves effective.
        chunk: number of chains that move at a time; their arrays should fit into the cache.
    """

    num_chains: int
    num_samples: int
    moves_per_stage: int
    burn_in: int
    thin: int
    trajectory: float
    max_leaps: int
    acceptance: float
    effective_share: float
    chunk: int


class TemperedSamples(NamedTuple):
    """The result of a run.

    Attributes:
        positions: the samples of each chain.
        log_likelihoods: their log-likelihoods.
        acceptance: mean probability of acceptance while they were drawn.
        num_gradients: gradients of one chain in all.
        num_stages: number of temperatures.
        log_evidence: estimate of the logarithm of the probability of the data.
    """

    positions: Float[Array, "chains samples parameters"]
    log_likelihoods: Float[Array, "chains samples"]
    acceptance: Float[Array, ""]
    num_gradients: Int[Array, ""]
    num_stages: Int[Array, ""]
    log_evidence: Float[Array, ""]


class _Particles(NamedTuple):
    """Positions, their log-likelihoods, and the gradients of these."""

    position: Float[Array, "*chains parameters"]
    value: Float[Array, "*chains"]
    gradient: Float[Array, "*chains parameters"]


class _Walk(NamedTuple):
    """What moves change: the particles, the step size, and the number of gradients so far."""

    particles: _Particles
    step_size: Float[Array, ""]
    num_gradients: Int[Array, ""]


class _Anneal(NamedTuple):
    """The state that a stage changes."""

    walk: _Walk
    power: Float[Array, ""]
    stage: Int[Array, ""]
    log_evidence: Float[Array, ""]


def tempered_hmc(
    log_likelihood: Callable[[Float[Array, " parameters"]], Float[Array, ""]],
    bounds: Float[Array, " parameters"],
    plan: TemperingPlan,
    *,
    key: PRNGKeyArray,
) -> TemperedSamples:
    r"""Sample from $\pi(\theta) L(\theta)$, where $\pi$ is standard normal, truncated at plus and minus the bounds.

    Sequential Monte Carlo: particles drawn from the prior go through $\pi L^\beta$ with $\beta$ from 0 to 1. Each stage
    raises $\beta$ as far as enough particles remain effective, resamples them, and moves them by Hamiltonian Monte
    Carlo; at $\beta = 1$ they continue as chains. Trajectories are reflected at the bounds, which conserves energy and
    volume and costs nothing, while a map from an unbounded space would cost more than a small network.

    A pure function, which may be mapped over the arrays that `log_likelihood` closes over.

    Args:
        log_likelihood: logarithm of the likelihood of all data.
        bounds: of each parameter; infinite for one without.
        plan: the static numbers.
        key: random key.
    """
    prior_key, stage_key, chain_key = named_keys(key, "prior", "stages", "chains")
    value_and_gradient = jax.value_and_grad(log_likelihood)

    def at(position: Float[Array, " parameters"]) -> _Particles:
        return _Particles(position, *value_and_gradient(position))

    def trajectory(
        start: _Particles, power: Array, step_size: Array, num_leaps: Array, key: PRNGKeyArray
    ) -> tuple[_Particles, Float[Array, ""]]:
        """Move one chain along a trajectory; return where it is then, and the probability of acceptance."""
        momentum_key, accept_key = named_keys(key, "momentum", "accept")

        def energy(here: _Particles, momentum: Array) -> Array:
            return 0.5 * (here.position @ here.position + momentum @ momentum) - power * here.value

        def leap(_: Array, state: tuple[_Particles, Array]) -> tuple[_Particles, Array]:
            here, momentum = state
            momentum = momentum + 0.5 * step_size * (power * here.gradient - here.position)
            position = here.position + step_size * momentum
            is_outside = jnp.abs(position) > bounds
            position = jnp.where(is_outside, jnp.sign(position) * 2 * bounds - position, position)
            momentum = jnp.where(is_outside, -momentum, momentum)
            here = at(position)
            return here, momentum + 0.5 * step_size * (power * here.gradient - here.position)

        momentum = jr.normal(momentum_key, start.position.shape)
        end, last = jax.lax.fori_loop(0, num_leaps, leap, (start, momentum))
        accepted = jnp.exp(jnp.minimum(energy(start, momentum) - energy(end, last), 0.0))
        accepted = jnp.where(jnp.isfinite(accepted), accepted, 0.0)
        is_accepted = jr.uniform(accept_key) < accepted
        return jax.tree.map(lambda new, old: jnp.where(is_accepted, new, old), end, start), accepted

    def move(walk: _Walk, power: Array, key: PRNGKeyArray) -> tuple[_Walk, Float[Array, ""]]:
        """Move all chains by trajectories of one random length; also return the mean acceptance."""
        length_key, move_key = named_keys(key, "length", "moves")
        length = plan.trajectory * jr.uniform(length_key, minval=0.5, maxval=1.5)
        num_leaps = jnp.clip(jnp.ceil(length / walk.step_size), 1, plan.max_leaps).astype(int)
        particles, accepted = jax.lax.map(
            lambda args: trajectory(args[0], power, walk.step_size, num_leaps, args[1]),
            (walk.particles, jr.split(move_key, plan.num_chains)),
            batch_size=plan.chunk,
        )
        return _Walk(particles, walk.step_size, walk.num_gradients + num_leaps), jnp.mean(accepted)

    def adapt(walk: _Walk, accepted: Array) -> _Walk:
        step_size = walk.step_size * jnp.exp(_RATE * (accepted - plan.acceptance))
        return walk._replace(step_size=jnp.minimum(step_size, _LARGEST_STEP))

    def adapted_moves(walk: _Walk, power: Array, num_moves: int, *, key: PRNGKeyArray) -> _Walk:
        def adapted(walk: _Walk, key: PRNGKeyArray) -> tuple[_Walk, None]:
            return adapt(*move(walk, power, key)), None

        return jax.lax.scan(adapted, walk, jr.split(key, num_moves))[0]

    def stage(state: _Anneal) -> _Anneal:
        """Raise the power, resample, and move."""
        resample_key, move_key = named_keys(jr.fold_in(stage_key, state.stage), "resample", "moves")
        values = state.walk.particles.value
        step = _next_step(values, 1 - state.power, plan.effective_share)
        weights = jax.nn.softmax(step * values)
        # Systematic resampling: one uniform number for all particles.
        ends = jnp.cumsum(weights)
        places = (jnp.arange(plan.num_chains, dtype=float) + jr.uniform(resample_key)) / plan.num_chains * ends[-1]
        chosen = jnp.clip(jnp.searchsorted(ends, places), 0, plan.num_chains - 1)
        walk = state.walk._replace(particles=jax.tree.map(lambda leaf: leaf[chosen], state.walk.particles))
        power = jnp.where(step >= 1 - state.power, 1.0, state.power + step)
        gain = jax.nn.logsumexp(step * values) - math.log(plan.num_chains)
        walk = adapted_moves(walk, power, plan.moves_per_stage, key=move_key)
        return _Anneal(walk, power, state.stage + 1, state.log_evidence + gain)

    draws = jax.vmap(lambda key: jr.truncated_normal(key, -bounds, bounds))(jr.split(prior_key, plan.num_chains))
    start = jax.lax.map(at, draws, batch_size=plan.chunk)
    zero = jnp.zeros((), int)
    first = _Anneal(_Walk(start, jnp.asarray(_FIRST_STEP), zero), jnp.asarray(0.0), zero, jnp.asarray(0.0))
    last = jax.lax.while_loop(lambda state: (state.power < 1) & (state.stage < _MAX_STAGES), stage, first)
    burn_in_key, sample_key = named_keys(chain_key, "burn-in", "samples")
    walk = adapted_moves(last.walk, last.power, plan.burn_in, key=burn_in_key)

    def sample(walk: _Walk, key: PRNGKeyArray) -> tuple[_Walk, tuple[Array, Array, Array]]:
        walk, accepted = jax.lax.scan(lambda walk, key: move(walk, last.power, key), walk, jr.split(key, plan.thin))
        return walk, (walk.particles.position, walk.particles.value, jnp.mean(accepted))

    walk, (positions, values, accepted) = jax.lax.scan(sample, walk, jr.split(sample_key, plan.num_samples))
    # If the last temperature was not reached, these are not samples of the posterior.
    is_posterior = last.power >= 1
    return TemperedSamples(
        positions=jnp.where(is_posterior, jnp.swapaxes(positions, 0, 1), jnp.nan),
        log_likelihoods=values.T,
        acceptance=jnp.mean(accepted),
        num_gradients=walk.num_gradients,
        num_stages=last.stage,
        log_evidence=last.log_evidence,
    )


def _next_step(values: Float[Array, " chains"], most: Float[Array, ""], share: float) -> Float[Array, ""]:
    """Return by how much the power may rise, at most `most`, so that this share of the particles stays effective."""

    def is_effective(step: Array) -> Array:
        weights = jax.nn.softmax(step * values)
        return share * values.size * jnp.sum(weights**2) <= 1

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        good = is_effective(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    low, _ = jax.lax.fori_loop(0, _BISECTIONS, halve, (jnp.zeros_like(most), most))
    return jnp.where(is_effective(most), most, low)
