"""Stochastic-gradient MCMC: SGLD, SGHMC, and a convergence diagnostic (Section 5)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._checks import Scalar, check_finite, check_positive, check_scalar, check_share, num_examples
from .._keys import named_keys
from ._parameters import split_parameters

# As in RMSprop: keeps a coordinate without gradient from moving infinitely far.
_EPSILON = 1e-7


class LangevinState(NamedTuple):
    """The state of a chain: parameters, momentum, and the running second moment of the gradient."""

    position: Float[Array, " parameters"]
    momentum: Float[Array, " parameters"]
    second_moment: Float[Array, " parameters"] | None


class Langevin(eqx.Module):
    r"""Langevin dynamics with momentum, whose stationary distribution is $\exp(-L(\theta) / T)$.

    One step with gradient $g$ of $L$ and standard normal $\epsilon$ is the one of the testbed's `sgmcmc` agent,

    $m \leftarrow \alpha m + \sqrt{h}\,g - \sqrt{2 (1 - \alpha) T}\,M^{1/2} \epsilon$ and
    $\theta \leftarrow \theta - \sqrt{h}\,M^{-1} m$,

    with step size $h$, momentum decay $\alpha$ and a diagonal mass $M$: the identity, or with preconditioning the
    root of the running second moment of the gradient, as in RMSprop. For $L$ the *mean* loss of $N$ examples and its
    penalty, the posterior distribution is the one at temperature $T = 1/N$. The step size's error is of order $h$.
    """

    step_size: Float[Array, ""]
    temperature: Float[Array, ""]
    momentum_decay: Float[Array, ""]
    preconditioner_decay: Float[Array, ""] | None

    def __init__(
        self,
        step_size: Scalar,
        temperature: Scalar,
        *,
        momentum_decay: Scalar = 0.9,
        preconditioner_decay: Scalar | None = None,
    ):
        """Initialize with numbers that may be traced arrays: sweeping them compiles once.

        Args:
            step_size: the step size, called the learning rate in the testbed.
            temperature: the temperature, one over the number of examples.
            momentum_decay: share of the momentum kept at each step; zero is SGLD.
            preconditioner_decay: share of the running second moment kept at each step; None for no preconditioning.
        """
        self.step_size = check_scalar("step_size", step_size, minimum=0.0)
        self.temperature = check_scalar("temperature", temperature, minimum=0.0)
        self.momentum_decay = check_share("momentum_decay", momentum_decay, below_one=True)
        self.preconditioner_decay = (
            None
            if preconditioner_decay is None
            else check_share("preconditioner_decay", preconditioner_decay, below_one=True)
        )

    def init(self, position: Float[Array, " parameters"]) -> LangevinState:
        """Return the state at these parameters, at rest."""
        zeros = jnp.zeros_like(position)
        return LangevinState(position, zeros, None if self.preconditioner_decay is None else zeros)

    def step(
        self, state: LangevinState, gradient: Float[Array, " parameters"], noise: Float[Array, " parameters"]
    ) -> LangevinState:
        """Return the state after one step."""
        root = jnp.sqrt(self.step_size)
        noise = jnp.sqrt(2 * (1 - self.momentum_decay) * self.temperature) * noise
        second_moment = state.second_moment
        if self.preconditioner_decay is None or second_moment is None:
            momentum = self.momentum_decay * state.momentum + root * gradient - noise
            return LangevinState(state.position - root * momentum, momentum, second_moment)
        decay = self.preconditioner_decay
        second_moment = decay * second_moment + (1 - decay) * jnp.square(gradient)
        mass = jnp.sqrt(second_moment) + _EPSILON
        momentum = self.momentum_decay * state.momentum + root * gradient - jnp.sqrt(mass) * noise
        return LangevinState(state.position - root * momentum / mass, momentum, second_moment)


def sghmc(
    step_size: Scalar, temperature: Scalar, *, momentum_decay: Scalar = 0.9, precondition: bool = False
) -> Langevin:
    """Return stochastic-gradient HMC (Chen et al., 2014), with RMSprop's decay of 0.99 if preconditioned."""
    decay = 0.99 if precondition else None
    return Langevin(step_size, temperature, momentum_decay=momentum_decay, preconditioner_decay=decay)


def sgld(step_size: Scalar, temperature: Scalar, *, precondition: bool = False) -> Langevin:
    r"""Return stochastic-gradient Langevin dynamics: $\theta \leftarrow \theta - h g + \sqrt{2 h T} \epsilon$."""
    return sghmc(step_size, temperature, momentum_decay=0.0, precondition=precondition)


def run_chain(
    module: PyTree,
    data: PyTree[Array],
    loss: Callable[[Any, Any], Float[Array, ""]],
    algorithm: Langevin,
    *,
    num_steps: int,
    burn_in: int,
    thin: int,
    batch_size: int | None = None,
    key: PRNGKeyArray,
) -> PyTree:
    """Run a chain over the parameters of a module; return its samples, for `from_samples(module, samples)`.

    One compiled loop that stores only the samples it returns: `vmap` it over keys for several chains, over data and
    algorithms for several problems. A chain that diverges returns non-finite samples, which `from_samples` reports; in
    a `vmap` it does not affect the others.

    Args:
        module: the start of the chain, any module; its parameters are its unfrozen floating-point arrays.
        data: a tree of arrays with a leading axis for the examples.
        loss: maps the module and a batch (a tree like `data`) to the mean loss, its penalty included.
        algorithm: the dynamics, `sgld(...)` or `sghmc(...)`.
        num_steps: number of steps.
        burn_in: the step after which the first sample is kept.
        thin: number of steps between samples. There are `1 + (num_steps - burn_in) // thin` samples.
        batch_size: number of examples per step, drawn with replacement; None, or at least the size of the data, uses
            all.
        key: random key.

    Returns:
        The module's parameter tree with a leading axis for the samples.
    """
    for name, value in (("num_steps", num_steps), ("burn_in", burn_in), ("thin", thin)):
        check_positive(name, value)
    if burn_in > num_steps:
        raise ValueError(f"`burn_in` must be at most `num_steps`, {num_steps}; got {burn_in}.")
    length = num_examples("data", data)
    if batch_size is not None:
        check_positive("batch_size", batch_size)
    position, skeleton = split_parameters(module)
    batch_key, noise_key = named_keys(key, "batch", "noise")

    def batch_at(step: Int[Array, ""]) -> PyTree[Array]:
        if batch_size is None or batch_size >= length:
            return data
        numbers = jr.randint(jr.fold_in(batch_key, step), (batch_size,), 0, length)
        return jax.tree.map(lambda leaf: leaf[numbers], data)

    def advance(step: Int[Array, ""], state: LangevinState) -> LangevinState:
        batch = batch_at(step)
        gradient = jax.grad(lambda vector: loss(skeleton.build(vector), batch))(state.position)
        # One draw for the whole vector: for small networks, random numbers are a good part of a step.
        return algorithm.step(state, gradient, jr.normal(jr.fold_in(noise_key, step), state.position.shape))

    def keep(state: LangevinState, stop: Int[Array, ""]) -> tuple[LangevinState, Float[Array, " parameters"]]:
        state = jax.lax.fori_loop(jnp.where(stop == burn_in, 0, stop - thin), stop, advance, state)
        return state, state.position

    _, positions = jax.lax.scan(keep, algorithm.init(position), jnp.arange(burn_in, num_steps + 1, thin))
    return jax.vmap(skeleton.unflatten)(positions)


def split_r_hat(values: Float[Array, "chains samples *shape"]) -> Float[Array, "*shape"]:
    r"""Return the split $\hat R$ of Gelman et al. (2013): near one where chains agree with each other and over time.

    Parameters of a network may be permuted without changing its function, so look at functions of them: at the
    probabilities that each sample predicts. Each chain is cut into halves; the variance of all values over the mean
    variance within the halves is $\hat R^2$. Values that never change in any chain have $\hat R = 1$.
    """
    num_chains, num_samples = values.shape[:2]
    half = num_samples // 2
    if half < 2:
        raise ValueError(f"`values` must have at least 4 samples per chain; got {num_samples}.")
    values = check_finite("values", values)
    halves = values[:, : 2 * half].reshape(2 * num_chains, half, *values.shape[2:])
    within = jnp.mean(jnp.var(halves, axis=1, ddof=1), axis=0)
    between = jnp.var(jnp.mean(halves, axis=1), axis=0, ddof=1)
    ratio = (half - 1) / half + between / jnp.where(within > 0, within, 1.0)
    # Where nothing varies within the halves, they agree exactly or not at all.
    return jnp.where(within > 0, jnp.sqrt(ratio), jnp.where(between > 0, jnp.inf, 1.0))
