"""Many iterations of Algorithm 1 in one compiled loop."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from .._checks import check_positive, num_examples
from ..losses import AbstractLoss, Batch
from ._batches import AbstractBatches
from ._state import TrainState
from ._step import Trained, merge, step_indices, update


def _take(data: Batch, ids: Int[Array, " batch"]) -> Batch:
    """Return the examples at these positions."""
    return jax.tree.map(lambda leaf: leaf[ids], data)


def train_loop(
    state: TrainState,
    data: Batch,
    *,
    loss: AbstractLoss,
    optimizer: optax.GradientTransformation,
    num_index_samples: int,
    batches: AbstractBatches,
    capacity: int,
    num_steps: int | Int[Array, ""],
    data_size: Int[Array, ""] | None = None,
) -> tuple[TrainState, Float[Array, " steps"]]:
    """Make `num_steps` steps, which may be traced, of at most `capacity`; the losses beyond are NaN."""
    params, rest = eqx.partition(state.enn, state.mask)
    # All random numbers of the block at once: small kernels inside of the loop would cost more than the step itself.
    steps = state.step + jnp.arange(capacity, dtype=state.step.dtype)
    zs = step_indices(state.enn.index, num_index_samples, steps, key=state.key)
    ids = batches.ids(num_examples("data", data), data_size, state.step, capacity, key=state.key)

    def body(
        t: Int[Array, ""], carry: tuple[Trained, Float[Array, " steps"], Bool[Array, ""]]
    ) -> tuple[Trained, Float[Array, " steps"], Bool[Array, ""]]:
        trained, losses, ok = carry
        batch = data if ids is None else _take(data, ids[t])
        new, value, new_ok = update(trained, rest, batch, zs[t], loss=loss, optimizer=optimizer, ok=ok)
        return new, losses.at[t].set(jnp.where(ok, value, jnp.nan)), new_ok

    start = (Trained(params, state.opt_state, state.step), jnp.full(capacity, jnp.nan), jnp.array(True))
    trained, losses, _ = jax.lax.fori_loop(0, num_steps, body, start)
    return merge(state, trained, rest), losses


def train_steps(
    state: TrainState,
    data: Batch,
    *,
    loss: AbstractLoss,
    optimizer: optax.GradientTransformation,
    num_index_samples: int,
    batches: AbstractBatches,
    num_steps: int,
    data_size: Int[Array, ""] | None = None,
) -> tuple[TrainState, Float[Array, " steps"]]:
    """Make many steps of Algorithm 1 on data in memory, as one loop on the device.

    A pure function: compile it with `eqx.filter_jit`, map it over states, data and losses with `eqx.filter_vmap`. The
    result does not depend on how a run is cut into blocks. Where a step meets something that is not finite, the loop
    keeps the state before it, `state.step` stays there, and the losses after it are NaN.

    Args:
        state: the state of training.
        data: all examples.
        loss: the loss.
        optimizer: the optimizer that the state was made with.
        num_index_samples: number of index samples per step.
        batches: which examples a step sees.
        num_steps: number of steps; the numbers of all their examples and all their indices are in memory at once.
        data_size: number of examples to draw from, if `data` has been padded to a common size; may be traced.

    Returns:
        The new state, and the loss before each step.
    """
    check_positive("num_steps", num_steps)
    return train_loop(
        state,
        data,
        loss=loss,
        optimizer=optimizer,
        num_index_samples=num_index_samples,
        batches=batches,
        capacity=num_steps,
        num_steps=num_steps,
        data_size=data_size,
    )
