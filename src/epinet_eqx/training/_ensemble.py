"""Training of the particles of an ensemble in one compiled loop."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import check_positive, check_scalar
from .._enn import AbstractENN
from .._keys import named_keys
from ..bayes import Deterministic, Ensemble
from ..combinators import Prior, WithPrior
from ..losses import AbstractLoss, Batch
from ..networks import AbstractNetwork
from ._batches import AbstractBatches, UniformBatches
from ._fit import DEFAULT_OPTIMIZER
from ._fit_many import fit_many
from ._result import History


def _is_key(leaf: Any) -> bool:
    """Return whether `leaf` is an array of random keys."""
    return eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _per_particle(loss: AbstractLoss, num_particles: int) -> AbstractLoss:
    """Return a stack of losses whose random keys, those of a bootstrap, are another one for each particle."""

    def particle(number: Array) -> AbstractLoss:
        return jax.tree.map(lambda leaf: jr.fold_in(leaf, number) if _is_key(leaf) else leaf, loss)

    return eqx.filter_vmap(particle)(jnp.arange(num_particles))


def fit_ensemble(
    make_particle: Callable[[PRNGKeyArray], AbstractNetwork],
    data: Batch | tuple[Any, Any],
    loss: AbstractLoss,
    *,
    num_particles: int,
    num_steps: int,
    prior: Callable[[PRNGKeyArray], Callable[[PyTree[Array]], Any]] | None = None,
    prior_scale: float | Float[Array, ""] = 1.0,
    batch_size: int | None = 100,
    sampling: Callable[[int | None], AbstractBatches] = UniformBatches,
    optimizer: optax.GradientTransformation = DEFAULT_OPTIMIZER,
    validation: Batch | tuple[Any, Any] | None = None,
    eval_every: int | None = None,
    keep_best: bool = False,
    progress: bool = True,
    block_size: int = 100,
    key: PRNGKeyArray,
) -> tuple[Ensemble, History]:
    """Train an ensemble: all particles at once, each as if it were alone.

    Every particle has its own initialization, its own order of batches and, where the loss has a bootstrap, its own
    weights of the examples. Particle `k` depends on the key and `k` only: a larger ensemble begins with the smaller.

    Args:
        make_particle: makes one particle from a key.
        data: examples in memory, as in `fit`; all particles share them.
        loss: the loss of a single particle, its penalty included.
        num_particles: number of particles.
        num_steps: number of steps of each particle.
        prior: makes the fixed prior network of one particle from a key, for "ensemble+"; by default there is none.
        prior_scale: scale of the prior networks.
        batch_size: as in `fit`.
        sampling: as in `fit`.
        optimizer: as in `fit`.
        validation: as in `fit`.
        eval_every: as in `fit`.
        keep_best: as in `fit`, for each particle on its own.
        progress: as in `fit`; the loss shown is the mean over particles.
        block_size: as in `fit`.
        key: random key.

    Returns:
        The ensemble, and the history with a last axis of particles.

    Raises:
        NonFiniteLossError: some particles stopped, and there is no ensemble; its state has the others trained.
        TrainingInterrupted: as in `fit`.
    """
    check_positive("num_particles", num_particles)
    scale = check_scalar("prior_scale", jnp.asarray(prior_scale, dtype=float), minimum=0.0)
    particle_key, prior_key, train_key = named_keys(key, "particles", "priors", "train")

    def make(number: Array) -> AbstractENN:
        particle = Deterministic(make_particle(jr.fold_in(particle_key, number)))
        if prior is None:
            return particle
        return WithPrior(particle, Prior(Deterministic(prior(jr.fold_in(prior_key, number))), scale))

    has_keys = any(_is_key(leaf) for leaf in jax.tree.leaves(loss))
    result = fit_many(
        eqx.filter_vmap(make)(jnp.arange(num_particles)),
        data,
        _per_particle(loss, num_particles) if has_keys else loss,
        num_steps=num_steps,
        batch_size=batch_size,
        sampling=sampling,
        optimizer=optimizer,
        num_index_samples=1,
        validation=validation,
        eval_every=eval_every,
        keep_best=keep_best,
        progress=progress,
        block_size=block_size,
        loss_axis=0 if has_keys else None,
        key=train_key,
    )
    members: Any = result.enn
    return Ensemble(members if prior is not None else members.network), result.history
