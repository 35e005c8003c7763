"""Objectives: the functions that training minimizes."""

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
from .._tree import cast_floats, trainable_mask
from ..bayes import Deterministic
from ..combinators import InPrecision
from ..indices import AbstractIndex
from ..losses import AbstractLoss, AbstractPenalty, Batch, mean_loss

Metrics = dict[str, Array]
Result = tuple[Float[Array, ""], tuple[PyTree, Metrics]]

# An `AbstractObjective`, or any function of this form.
Objective = Callable[..., Result]

# The testbed's number (Appendix F.3), which is its index dimension.
_MAX_INDEX_SAMPLES = 8


def network_as_enn(model: Any) -> AbstractENN:
    """Return an ENN itself, and a network as the ENN that ignores its index."""
    if isinstance(model, AbstractENN):
        return model
    if not (isinstance(model, eqx.Module) and callable(model)):
        raise ValueError(f"`model` must be an ENN or a network, a callable Equinox module; got {type(model).__name__}.")
    return Deterministic(model)


class AbstractObjective(eqx.Module):
    """The function that training minimizes: of a model, its running state and a batch."""

    @abc.abstractmethod
    def __call__(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Result:
        """Return the loss, a mean over the batch, with the new model state and scalar metrics.

        Draw per-example randomness from `fold_in(key, i)`, where `i` is the example's number: the result then
        depends neither on the order within the batch nor on how the batch is split.
        """

    @abc.abstractmethod
    def evaluate(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Metrics:
        """Return metrics of held-out examples, each an array with one value per example."""


def _check_dtype(name: str, dtype: Any) -> Any:
    """Return `dtype` as a data type, which must be a floating-point one, or None."""
    if dtype is None:
        return None
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"`{name}` must be a floating-point type such as jnp.bfloat16, or None; got {dtype!r}.")
    return jnp.dtype(dtype)


class _InnerPenalty(AbstractPenalty):
    """A penalty that sees the ENN itself, with parameters in their own precision."""

    penalty: AbstractPenalty

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the penalty of the wrapped ENN."""
        return self.penalty(enn.enn if isinstance(enn, InPrecision) else enn, params, z)


def _in_precision(enn: AbstractENN, loss: AbstractLoss, dtype: Any) -> tuple[AbstractENN, AbstractLoss]:
    """Return the ENN that computes in `dtype`, with a loss for it; or both unchanged if `dtype` is None."""
    if dtype is None:
        return enn, loss
    return InPrecision(enn, dtype), eqx.tree_at(lambda node: node.penalty, loss, replace_fn=_InnerPenalty)


def _held_out(
    loss: AbstractLoss, outputs: Float[Array, "batch samples classes"], y: Shaped[Array, "batch ..."]
) -> Metrics:
    """Return the data loss of each example; for labels also the loss and the accuracy of the marginal prediction.

    An invalid label makes all of them NaN.
    """
    per_index = jax.vmap(lambda output, y: loss.data_loss(output, y, jnp.zeros_like(output)), in_axes=(0, None))
    metrics = {"loss": jnp.mean(jax.vmap(per_index)(outputs, y), axis=1)}
    if y.ndim == 1 and jnp.issubdtype(y.dtype, jnp.integer):
        # In a type too small for the number of classes, that number would wrap around.
        y = y.astype(jnp.int32) if outputs.shape[2] > jnp.iinfo(y.dtype).max else y
        log_probs = jax.nn.log_softmax(outputs)
        marginal = jax.nn.logsumexp(log_probs, axis=1) - jnp.log(float(outputs.shape[1]))
        is_class = (y >= 0) & (y < outputs.shape[2])
        log_loss = -jnp.take_along_axis(marginal, y[:, None], axis=1)[:, 0]
        correct = (jnp.argmax(marginal, axis=1) == y).astype(jnp.float32)
        # A target that is not a class gives NaN, so that a bad label is not counted as a wrong prediction.
        metrics |= {
            "log_loss": jnp.where(is_class, log_loss, jnp.nan),
            "accuracy": jnp.where(is_class, correct, jnp.nan),
        }
    return metrics


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
        lambda x, state, key: function(cast, x, state, key), in_axes=(0, None, 0), out_axes=(0, None), axis_name="batch"
    )
    # The statistics keep their precision, and a network may let them meet its activations.
    with jax.numpy_dtype_promotion("standard") if dtype is not None else contextlib.nullcontext():
        outputs, new_state = mapped(x, state, keys)
    back = jax.tree.map(lambda new, old: new.astype(old.dtype) if eqx.is_inexact_array(old) else new, new_state, state)
    return cast_floats(outputs, None if dtype is None else jnp.float32), back


class EpistemicObjective(AbstractObjective):
    """The objective of Algorithm 1: the loss of an ENN, averaged over a batch and index samples. No model state.

    A network is trained as the ENN that ignores its index.
    """

    loss: AbstractLoss
    num_index_samples: int | None = eqx.field(static=True)
    compute_dtype: Any = eqx.field(static=True)
    mask: PyTree[bool] | None

    def __init__(
        self,
        loss: AbstractLoss,
        *,
        num_index_samples: int | None = None,
        compute_dtype: Any = None,
        mask: PyTree[bool] | None = None,
    ):
        """Initialize the objective.

        Args:
            loss: the loss.
            num_index_samples: index samples per step; by default the size of the index, at most the testbed's 8.
            compute_dtype: type that the ENN computes in, such as `jnp.bfloat16`; None for that of its parameters.
            mask: selects the parameters that the penalty sees; by default `trainable_mask` of the model.
        """
        if not isinstance(loss, AbstractLoss):
            found = f"the class {loss.__name__}" if isinstance(loss, type) else type(loss).__name__
            raise ValueError(f"`loss` must be a loss, such as `CrossEntropy()`, or a `FunctionLoss`; got {found}.")
        if num_index_samples is not None:
            check_positive("num_index_samples", num_index_samples)
        self.loss = loss
        self.num_index_samples = num_index_samples
        self.compute_dtype = _check_dtype("compute_dtype", compute_dtype)
        self.mask = mask

    def num_samples(self, index: AbstractIndex) -> int:
        """Return the number of index samples per step."""
        return min(index.size, _MAX_INDEX_SAMPLES) if self.num_index_samples is None else self.num_index_samples

    def _indices(self, model: PyTree, key: PRNGKeyArray) -> Shaped[Array, "samples ..."]:
        """Return the index samples of a key."""
        index = network_as_enn(model).index
        return index.sample_many(self.num_samples(index), key=key)

    def __call__(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Result:
        """Return the mean loss, with the model state unchanged."""
        return self.at(self._indices(model, key))(model, model_state, batch, key=key)

    def at(self, zs: Shaped[Array, "samples ..."]) -> Objective:
        """Return the objective at given indices, which ignores its key: for loops that draw many steps at once."""

        def objective(model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Result:
            params = eqx.filter(model, trainable_mask(model) if self.mask is None else self.mask)
            enn, loss = _in_precision(network_as_enn(model), self.loss, self.compute_dtype)
            return mean_loss(loss, enn, zs, batch, params=params), (model_state, {})

        return objective

    def evaluate(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Metrics:
        """Return metrics of held-out examples, all at the same indices."""
        enn, _ = _in_precision(network_as_enn(model), self.loss, self.compute_dtype)
        return _held_out(self.loss, _outputs(enn, batch.x, self._indices(model, key)), batch.y)


class StatefulObjective(AbstractObjective):
    """The loss of a network with running statistics: `network(x, state, key=) -> (output, state)`.

    The network sees a batch by `jax.vmap` with the axis name "batch". To the loss it is an ENN that ignores its index.
    """

    loss: AbstractLoss
    compute_dtype: Any = eqx.field(static=True)

    def __init__(self, loss: AbstractLoss, *, compute_dtype: Any = None):
        """Initialize with the loss, and the type that the network computes in (None for that of its parameters)."""
        self.loss = loss
        self.compute_dtype = _check_dtype("compute_dtype", compute_dtype)

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

    def __call__(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Result:
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

    The trunk runs once per example for any number of indices, and its statistics do not depend on them.
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
        self.compute_dtype = _check_dtype("compute_dtype", compute_dtype)

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

    def __call__(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Result:
        """Return the mean loss and the new statistics of the trunk."""
        trunk, enn = model
        features, new_state = self._run(trunk, model_state, batch, key)
        zs = enn.index.sample_many(self.num_index_samples, key=key)
        wrapped, loss = _in_precision(enn, self.loss, self.compute_dtype)
        params = eqx.filter(model, trainable_mask(model))
        return mean_loss(loss, wrapped, zs, features, params=params), (new_state, {})

    def evaluate(self, model: PyTree, model_state: PyTree, batch: Batch, *, key: PRNGKeyArray) -> Metrics:
        """Return metrics of held-out examples, by the running statistics."""
        trunk, enn = eqx.nn.inference_mode(model)
        features, _ = self._run(trunk, model_state, batch, key)
        zs = enn.index.sample_many(self.num_index_samples, key=key)
        wrapped, _ = _in_precision(enn, self.loss, self.compute_dtype)
        return _held_out(self.loss, _outputs(wrapped, features.x, zs), batch.y)
