"""What training at scale minimizes: objectives of models with and without running statistics."""

import abc
import contextlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._checks import check_positive
from .._enn import AbstractENN
from .._keys import named_keys
from .._tree import trainable_mask
from ..bayes import Deterministic
from ..losses import AbstractLoss, Batch, mean_loss
from ._precision import cast_floats, check_dtype, in_precision

Metrics = dict[str, Array]


class AbstractObjective(eqx.Module):
    """A function of a model, its running state and a batch that one step makes smaller."""

    @abc.abstractmethod
    def __call__(
        self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], tuple[PyTree, Metrics]]:
        """Return the loss, a mean over the batch, and beside it the new model state and scalar metrics.

        Randomness that differs between examples must come from `fold_in(key, i)` with the number `i` of the example:
        then it depends neither on the order within the batch nor on how the batch is cut.
        """

    @abc.abstractmethod
    def evaluate(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Metrics:
        """Return metrics of held-out examples, each an array with one value per example."""


def _held_out(
    loss: AbstractLoss, outputs: Float[Array, "batch samples classes"], y: Shaped[Array, "batch ..."]
) -> Metrics:
    """Return the data loss of each example; for labels also the loss and the accuracy of the marginal prediction.

    A label that is no class makes all of them NaN.
    """
    per_index = jax.vmap(lambda output, y: loss.data_loss(output, y, jnp.zeros_like(output)), in_axes=(0, None))
    metrics = {"loss": jnp.mean(jax.vmap(per_index)(outputs, y), axis=1)}
    if y.ndim == 1 and jnp.issubdtype(y.dtype, jnp.integer):
        # In a type that is too small for the classes their number would wrap around.
        y = y.astype(jnp.int32) if outputs.shape[2] > jnp.iinfo(y.dtype).max else y
        log_probs = jax.nn.log_softmax(outputs)
        marginal = jax.nn.logsumexp(log_probs, axis=1) - jnp.log(float(outputs.shape[1]))
        is_class = (y >= 0) & (y < outputs.shape[2])
        log_loss = -jnp.take_along_axis(marginal, y[:, None], axis=1)[:, 0]
        correct = (jnp.argmax(marginal, axis=1) == y).astype(jnp.float32)
        # What is no class is neither right nor wrong: NaN is seen, and a wrong label is told from a wrong prediction.
        metrics |= {
            "log_loss": jnp.where(is_class, log_loss, jnp.nan),
            "accuracy": jnp.where(is_class, correct, jnp.nan),
        }
    return metrics


def _indices(enn: AbstractENN, num_samples: int, key: PRNGKeyArray) -> Shaped[Array, "samples ..."]:
    """Return index samples."""
    (index_key,) = named_keys(key, "index")
    return enn.index.sample_many(num_samples, key=index_key)


def _outputs(
    enn: AbstractENN, x: PyTree[Array], zs: Shaped[Array, "samples ..."]
) -> Float[Array, "batch samples classes"]:
    """Return the outputs of a batch at all indices."""
    return jax.vmap(lambda x: enn.heads(enn.embed(x), zs))(x)


def _run_stateful(
    function: Callable[..., tuple[PyTree, PyTree]],
    network: PyTree,
    state: PyTree,
    batch: Batch,
    dtype: Any,
    key: PRNGKeyArray,
) -> tuple[PyTree, PyTree]:
    """Return `function(network, x, state, key)` for a batch, in `dtype`, and the new state in its own precision."""
    cast, x = cast_floats(network, dtype), cast_floats(batch.x, dtype)
    (example_key,) = named_keys(key, "example")
    keys = jax.vmap(lambda i: jr.fold_in(example_key, i))(batch.i)
    mapped = jax.vmap(
        lambda x, state, key: function(cast, x, state, key),
        in_axes=(0, None, 0),
        out_axes=(0, None),
        axis_name="batch",
    )
    # The statistics keep their precision, and a network may let them meet its activations.
    with jax.numpy_dtype_promotion("standard") if dtype is not None else contextlib.nullcontext():
        outputs, new_state = mapped(x, state, keys)
    back = jax.tree.map(lambda new, old: new.astype(old.dtype) if eqx.is_inexact_array(old) else new, new_state, state)
    return cast_floats(outputs, None if dtype is None else jnp.float32), back


class EpistemicObjective(AbstractObjective):
    """The loss of an ENN, averaged over a batch and index samples (Algorithm 1); there is no model state."""

    loss: AbstractLoss
    num_index_samples: int = eqx.field(static=True)
    compute_dtype: Any = eqx.field(static=True)

    def __init__(self, loss: AbstractLoss, *, num_index_samples: int, compute_dtype: Any = None):
        """Initialize the objective.

        Args:
            loss: the loss.
            num_index_samples: index samples per step.
            compute_dtype: type that the ENN computes in, such as `jnp.bfloat16`; None for that of its parameters.
        """
        check_positive("num_index_samples", num_index_samples)
        self.loss = loss
        self.num_index_samples = num_index_samples
        self.compute_dtype = check_dtype("compute_dtype", compute_dtype)

    def __call__(
        self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], tuple[PyTree, Metrics]]:
        """Return the mean loss, with the model state as it was."""
        zs = _indices(model, self.num_index_samples, key)
        enn, loss = in_precision(model, self.loss, self.compute_dtype)
        params = eqx.filter(model, trainable_mask(model))
        return mean_loss(loss, enn, zs, batch, params=params), (model_state, {})

    def evaluate(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Metrics:
        """Return metrics of held-out examples, all at the same indices."""
        zs = _indices(model, self.num_index_samples, key)
        enn, _ = in_precision(model, self.loss, self.compute_dtype)
        return _held_out(self.loss, _outputs(enn, batch.x, zs), batch.y)


class StatefulObjective(AbstractObjective):
    """The loss of a network with running statistics: `network(x, state, key=) -> (output, state)`.

    The network sees a batch by `jax.vmap` with the axis name "batch". To the loss it is an ENN that ignores its index.
    """

    loss: AbstractLoss
    compute_dtype: Any = eqx.field(static=True)

    def __init__(self, loss: AbstractLoss, *, compute_dtype: Any = None):
        """Initialize with the loss, and the type that the network computes in (None for that of its parameters)."""
        self.loss = loss
        self.compute_dtype = check_dtype("compute_dtype", compute_dtype)

    def _run(
        self, model: PyTree, model_state: PyTree, batch: Batch, key: PRNGKeyArray
    ) -> tuple[AbstractENN, Int[Array, " samples"], Batch, PyTree]:
        """Return an ENN whose outputs are its inputs, its only index, a batch of outputs, and the new state."""
        outputs, new_state = _run_stateful(
            lambda network, x, state, key: network(x, state, key=key),
            model,
            model_state,
            batch,
            self.compute_dtype,
            key,
        )
        return Deterministic(lambda x: x), jnp.zeros(1, dtype=jnp.int32), Batch(outputs, batch.y, batch.i), new_state

    def __call__(
        self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], tuple[PyTree, Metrics]]:
        """Return the mean loss, the new statistics, and for labels the accuracy on the batch."""
        enn, zs, outputs, new_state = self._run(model, model_state, batch, key)
        value = mean_loss(self.loss, enn, zs, outputs, params=eqx.filter(model, trainable_mask(model)))
        seen = _held_out(self.loss, outputs.x[:, None], batch.y)
        return value, (new_state, {name: jnp.mean(seen[name]) for name in ("accuracy",) if name in seen})

    def evaluate(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Metrics:
        """Return metrics of held-out examples, by the running statistics."""
        _, _, outputs, _ = self._run(eqx.nn.inference_mode(model), model_state, batch, key)
        return _held_out(self.loss, outputs.x[:, None], batch.y)


class TrunkObjective(AbstractObjective):
    """The loss of a model `(trunk, enn)`: an ENN on the features of a network with running statistics.

    The trunk runs once per example, whatever the number of indices, and its statistics know nothing of them.
    """

    loss: AbstractLoss
    num_index_samples: int = eqx.field(static=True)
    compute_dtype: Any = eqx.field(static=True)

    def __init__(self, loss: AbstractLoss, *, num_index_samples: int, compute_dtype: Any = None):
        """Initialize the objective.

        Args:
            loss: the loss; its penalty sees the trainable parameters of both parts.
            num_index_samples: index samples per step.
            compute_dtype: type that both parts compute in; None for that of their parameters.
        """
        check_positive("num_index_samples", num_index_samples)
        self.loss = loss
        self.num_index_samples = num_index_samples
        self.compute_dtype = check_dtype("compute_dtype", compute_dtype)

    def _run(self, trunk: PyTree, model_state: PyTree, batch: Batch, key: PRNGKeyArray) -> tuple[Batch, PyTree]:
        """Return a batch of features, and the new state."""
        features, new_state = _run_stateful(
            lambda network, x, state, key: network.with_features(x, state, key=key)[1:],
            trunk,
            model_state,
            batch,
            self.compute_dtype,
            key,
        )
        return Batch(features, batch.y, batch.i), new_state

    def __call__(
        self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], tuple[PyTree, Metrics]]:
        """Return the mean loss and the new statistics of the trunk."""
        trunk, enn = model
        features, new_state = self._run(trunk, model_state, batch, key)
        zs = _indices(enn, self.num_index_samples, key)
        wrapped, loss = in_precision(enn, self.loss, self.compute_dtype)
        params = eqx.filter(model, trainable_mask(model))
        return mean_loss(loss, wrapped, zs, features, params=params), (new_state, {})

    def evaluate(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Metrics:
        """Return metrics of held-out examples, by the running statistics."""
        trunk, enn = eqx.nn.inference_mode(model)
        features, _ = self._run(trunk, model_state, batch, key)
        zs = _indices(enn, self.num_index_samples, key)
        wrapped, _ = in_precision(enn, self.loss, self.compute_dtype)
        return _held_out(self.loss, _outputs(wrapped, features.x, zs), batch.y)
