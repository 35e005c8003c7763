"""Training of many models of one shape in one compiled loop: any stack of ENNs, and ensembles."""

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from .._checks import Scalar, as_real_array, check_finite, check_function, check_positive, check_scalar, num_examples
from .._enn import AbstractENN
from .._keys import named_keys
from .._xla import jit_for_one_run
from ..bayes import Deterministic, Ensemble
from ..combinators import Prior, WithPrior
from ..indices import AbstractIndex
from ..losses import AbstractLoss, Batch, mean_data_loss
from ..networks import AbstractNetwork
from ._batches import AbstractBatches, UniformBatches
from ._driver import Block, Evaluate, Schedule, drive
from ._fit import DEFAULT_OPTIMIZER, check_intervals
from ._objectives import EpistemicObjective, network_as_enn
from ._optimizer import ByContent
from ._processes import StopRequest
from ._result import FitResult
from ._state import TrainState, as_state, init_state
from ._step import Draws, draw_steps, train_drawn
from ._streams import as_batch, count_outputs, first

_STACKED = eqx.if_array(0)
_Axes = tuple[int | None, int | None]


def _in_axes(axis: int | None) -> Any:
    """Return the `in_axes` of an argument that is stacked (0) or shared (None)."""
    return None if axis is None else _STACKED


@jit_for_one_run
def _draw_many(
    indices: AbstractIndex,
    starts: Int[Array, " members"],
    keys: Key[Array, " members"],
    data_sizes: Int[Array, " members"] | None,
    options: tuple[Any, ...],
) -> PyTree[Array]:
    """Draw the indices and examples of a block of steps of every member."""

    def one(index: AbstractIndex, start: Int[Array, ""], key: PRNGKeyArray, data_size: Int[Array, ""] | None) -> Draws:
        return draw_steps(index, start, data_size, key=key, **dict(options))

    return eqx.filter_vmap(one, in_axes=_STACKED)(indices, starts, keys, data_sizes)


@eqx.filter_jit
def _run_blocks(
    states: TrainState,
    data: Batch,
    draws: PyTree[Array],
    objective: EpistemicObjective,
    optimizer: ByContent,
    axes: _Axes,
    num_steps: Int[Array, ""],
) -> tuple[TrainState, Float[Array, "members steps"]]:
    """Make up to as many steps of every member as have been drawn, in one program."""

    def one(
        state: TrainState, data: Batch, draws: Draws, objective: EpistemicObjective
    ) -> tuple[TrainState, Float[Array, " steps"]]:
        return train_drawn(state, data, draws, objective, optimizer.value, num_steps)

    in_axes = (_STACKED, _in_axes(axes[0]), _STACKED, _in_axes(axes[1]))
    return eqx.filter_vmap(one, in_axes=in_axes)(states, data, draws, objective)


@eqx.filter_jit
def _validate_many(
    models: PyTree, loss: AbstractLoss, zs: Shaped[Array, "members samples ..."], validation: Batch, axes: _Axes
) -> Float[Array, " members"]:
    """Return the mean data loss of every member."""

    def one(loss: AbstractLoss, model: PyTree, zs: Shaped[Array, "samples ..."], data: Batch) -> Float[Array, ""]:
        return mean_data_loss(loss, network_as_enn(model), zs, data)

    in_axes = (_in_axes(axes[1]), _STACKED, 0, _in_axes(axes[0]))
    return eqx.filter_vmap(one, in_axes=in_axes)(loss, models, zs, validation)


def _member_keys(key: PRNGKeyArray, members: int, name: str) -> Key[Array, " members"]:
    """Return one key per member, from the named stream."""
    keys = jax.vmap(lambda member: jr.fold_in(key, member))(jnp.arange(members))
    return jax.vmap(lambda k: named_keys(k, name)[0])(keys)


def _as_batches(name: str, data: Any, axis: int | None) -> Batch:
    """Return data, stacked or shared, as a `Batch`."""
    if axis is None or isinstance(data, Batch) or not isinstance(data, tuple):
        return as_batch(name, data)
    stacked = jax.tree.map(lambda leaf: as_real_array(name, leaf), data)
    return eqx.filter_vmap(lambda x, y: as_batch(name, (x, y)))(*stacked)


def _check_many(name: str, data: Batch, models: PyTree, loss: AbstractLoss, axes: _Axes, members: int) -> None:
    """Raise unless the stacked models can be trained on these examples with this loss."""
    flat = data
    if axes[0] == 0:
        stacked = num_examples(name, data)
        if stacked != members:
            raise ValueError(f"`{name}` must have a leading axis of {members} members; got {stacked}.")
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), data)
    check_finite(f"x of {name}", flat.x)
    one = loss if axes[1] is None else eqx.filter_eval_shape(first, loss)
    one.check_targets(flat.y, count_outputs(models, flat.x, stacked=True))


class FitOptions(TypedDict, total=False):
    """Options that `fit_many` and `fit_ensemble` share with `fit`; they apply to each member."""

    batch_size: int | None
    sampling: Callable[[int | None], AbstractBatches]
    optimizer: optax.GradientTransformation
    validation: Batch | tuple[Any, Any] | None
    eval_every: int | None
    keep_best: bool
    progress: bool
    block_size: int


def fit_many(
    models: PyTree | TrainState,
    data: Batch | tuple[Any, Any],
    loss: AbstractLoss,
    *,
    num_steps: int,
    num_index_samples: int | None = None,
    mask: PyTree[bool] | None = None,
    data_axis: int | None = None,
    loss_axis: int | None = None,
    data_sizes: Int[Array, " members"] | None = None,
    key: PRNGKeyArray,
    **options: Unpack[FitOptions],
) -> FitResult:
    """Train many models of one shape at once: particles of an ensemble, seeds, values of a swept scalar.

    Member `m` is trained as `fit(model, ..., key=fold_in(key, m))` would train it alone. Make the members with
    `eqx.filter_vmap`, and a loss that differs between them likewise:
    `eqx.filter_vmap(lambda l2: CrossEntropy(l2=l2))(values)`.

    Args:
        models: the models as one module, with a leading axis of members on every array; or their state, to continue.
        data: examples in memory, as in `fit`.
        loss: the loss.
        num_steps: as in `fit`.
        num_index_samples: as in `fit`.
        mask: as in `fit`, one for all members.
        data_axis: 0 if each member has its own data (and validation data) along a leading axis, None if they share
            them.
        loss_axis: 0 if the arrays of `loss` have a leading axis of members, None if they share it.
        data_sizes: number of examples of each member, if stacked data have been padded to a common size.
        key: random key.
        options: `batch_size`, `sampling`, `optimizer`, `validation`, `eval_every`, `keep_best`, `progress` and
            `block_size` of `fit`; the loss in the progress bar is the mean over members.

    Returns:
        The stacked models and states, and the history with a last axis of members.

    Raises:
        NonFiniteLossError: names the members that stopped; its state has all others trained to the end.
        TrainingInterrupted: as in `fit`.
    """
    for name, axis in (("data_axis", data_axis), ("loss_axis", loss_axis)):
        if axis not in (None, 0):
            raise ValueError(f"`{name}` must be None or 0; got {axis}.")
    validation, keep_best = options.get("validation"), options.get("keep_best", False)
    eval_every = check_intervals(num_steps, options.get("eval_every"), validation, keep_best)
    block_size, batches = (
        options.get("block_size", 100),
        options.get("sampling", UniformBatches)(options.get("batch_size", 100)),
    )
    schedule = Schedule(num_steps=num_steps, block_size=block_size, eval_every=eval_every)
    optimizer = options.get("optimizer", DEFAULT_OPTIMIZER)
    members = num_examples("models", eqx.filter(models, eqx.is_array))
    if isinstance(models, TrainState):
        states = as_state(models, optimizer, mask=mask, key=key)
    else:
        keys = _member_keys(key, members, "train")
        states = eqx.filter_vmap(lambda model, k: init_state(model, optimizer, mask=mask, key=k))(models, keys)
    objective = EpistemicObjective(loss, num_index_samples=num_index_samples, mask=states.mask)
    index = network_as_enn(states.model).index
    samples, axes = objective.num_samples(index), (data_axis, loss_axis)
    examples = _as_batches("data", data, data_axis)
    _check_many("data", examples, states.model, loss, axes, members)
    evaluate: Evaluate | None = None
    if validation is not None:
        held_out = _as_batches("validation", validation, data_axis)
        _check_many("validation", held_out, states.model, loss, axes, members)
        zs = eqx.filter_vmap(lambda index, k: index.sample_many(samples, key=k))(
            index, _member_keys(key, members, "validation")
        )
        evaluate = lambda models, _: {"loss": np.asarray(_validate_many(models, loss, zs, held_out, axes))}  # noqa: E731
    drawing = (
        ("num_examples", num_examples("data", first(examples) if data_axis == 0 else examples)),
        ("num_index_samples", samples),
        ("batches", batches),
        ("num_steps", block_size),
    )
    shared = ByContent(optimizer)

    def advance(state: TrainState, count: int, request: StopRequest) -> Block:
        draws = _draw_many(network_as_enn(state.model).index, state.step, state.key, data_sizes, drawing)
        number = jnp.asarray(count, dtype=jnp.int32)
        state, losses = _run_blocks(state, examples, draws, objective, shared, axes, number)
        return Block(state, {"loss": np.asarray(losses).T[:count]}, 0, False)

    progress = options.get("progress", True)
    return drive(states, advance, schedule, evaluate=evaluate, keep_best=keep_best, progress=progress)


def _is_key(leaf: Any) -> bool:
    """Return whether `leaf` is an array of random keys."""
    return eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _per_particle(loss: AbstractLoss, num_particles: int) -> AbstractLoss:
    """Return a stack of losses with random keys (those of a bootstrap) that differ between particles."""

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
    prior_scale: Scalar = 1.0,
    key: PRNGKeyArray,
    **options: Unpack[FitOptions],
) -> FitResult:
    """Train an ensemble: all particles in one program, each as if trained alone.

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
        key: random key.
        options: as in `fit_many`.

    Returns:
        The `Ensemble`, the stacked states of its particles, and the history with a last axis of particles.

    Raises:
        NonFiniteLossError: some particles failed, so no ensemble is returned; its state has the others trained.
        TrainingInterrupted: as in `fit`.
    """
    check_function("make_particle", make_particle)
    check_positive("num_particles", num_particles)
    scale = check_scalar("prior_scale", prior_scale, minimum=0.0)
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
        num_index_samples=1,
        loss_axis=0 if has_keys else None,
        key=train_key,
        **options,
    )
    particles = result.model.network if prior is None else result.model
    return FitResult(Ensemble(particles), result.state, result.history)
