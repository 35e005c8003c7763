"""One iteration of Algorithm 1."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._keys import named_keys
from .._tree import sum_of_squares
from ..indices import AbstractIndex
from ..losses import AbstractLoss, Batch, mean_loss
from ._state import TrainState


class Trained(NamedTuple):
    """What a step changes."""

    params: PyTree
    opt_state: PyTree
    step: Int[Array, ""]


def step_indices(
    index: AbstractIndex, num_index_samples: int, steps: Int[Array, " steps"], *, key: PRNGKeyArray
) -> Shaped[Array, "steps samples ..."]:
    """Return the index samples of some steps (Algorithm 1, line 3); those of a step depend on the key and its number.

    They are `index.sample_many` with the step's own key, mapped once over all samples of all steps: with an axis of a
    few samples innermost, XLA unrolls the rounds of random numbers for each of them, and takes longer to compile that
    than all the rest of a training loop.
    """
    (index_key,) = named_keys(key, "index")
    step_keys = jax.vmap(lambda step: jr.fold_in(index_key, step))(steps)
    numbers = jnp.arange(steps.size * num_index_samples)
    keys = jax.vmap(jr.fold_in)(step_keys[numbers // num_index_samples], numbers % num_index_samples)
    zs = jax.vmap(lambda key: index.sample(key=key))(keys)
    return zs.reshape(steps.size, num_index_samples, *zs.shape[1:])


def update(
    trained: Trained,
    rest: PyTree,
    batch: Batch,
    zs: Shaped[Array, "samples ..."],
    *,
    loss: AbstractLoss,
    optimizer: optax.GradientTransformation,
    ok: Bool[Array, ""],
) -> tuple[Trained, Float[Array, ""], Bool[Array, ""]]:
    """Make one step, unless an earlier one was not `ok` or this one meets something that is not finite.

    Args:
        trained: what the step changes.
        rest: the part of the ENN that is not trained.
        batch: examples of this step.
        zs: index samples of this step.
        loss: the loss.
        optimizer: the optimizer.
        ok: whether all earlier steps were.

    Returns:
        What the step changed, the loss before it, and whether it was made.
    """

    def objective(params: PyTree) -> Float[Array, ""]:
        return mean_loss(loss, eqx.combine(params, rest), zs, batch, params=params)

    value, grads = jax.value_and_grad(objective)(trained.params)
    # Line searches and plateau schedules want the value and the objective; other optimizers ignore them.
    extended: Any = optax.with_extra_args_support(optimizer)
    # Optax mixes types, such as a float to the power of the step: it must work where a program forbids that elsewhere.
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = extended.update(
            grads, trained.opt_state, trained.params, value=value, grad=grads, value_fn=objective
        )
    params = eqx.apply_updates(trained.params, updates)
    # The squares are those of the optimizer's moments: they overflow before the gradient does.
    ok = ok & jnp.isfinite(value + sum_of_squares(grads)) & jnp.isfinite(sum_of_squares(params))
    new = Trained(params, opt_state, trained.step + 1)
    return jax.tree.map(lambda after, before: jnp.where(ok, after, before), new, trained), value, ok


def train_step(
    state: TrainState,
    batch: Batch,
    *,
    loss: AbstractLoss,
    optimizer: optax.GradientTransformation,
    num_index_samples: int,
) -> tuple[TrainState, Float[Array, ""]]:
    """Make one step of Algorithm 1 on a batch.

    A pure function: compile it with `eqx.filter_jit`. If the loss, its gradient or the new parameters are not finite,
    the state comes back as it was, and `state.step` tells.

    Args:
        state: the state of training.
        batch: examples of this step.
        loss: the loss.
        optimizer: the optimizer that the state was made with.
        num_index_samples: number of index samples.

    Returns:
        The new state, and the loss before the step.
    """
    params, rest = eqx.partition(state.enn, state.mask)
    zs = step_indices(state.enn.index, num_index_samples, state.step[None], key=state.key)[0]
    trained = Trained(params, state.opt_state, state.step)
    trained, value, _ = update(trained, rest, batch, zs, loss=loss, optimizer=optimizer, ok=jnp.array(True))
    return merge(state, trained, rest), value


def merge(state: TrainState, trained: Trained, rest: PyTree) -> TrainState:
    """Return the state with what was trained."""
    return TrainState(eqx.combine(trained.params, rest), trained.opt_state, trained.step, state.key, state.mask)
