"""Models of other libraries as networks: features of an Equinox model, functions of a batch."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._abstract import AbstractNetwork


class _Recorder(eqx.Module):
    """Stands in for a layer, runs it and keeps its input."""

    layer: Callable[..., Any]
    record: Callable[[Any], None] = eqx.field(static=True)

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what the layer returns."""
        self.record(x)
        return self.layer(x, *args, **kwargs)


class Tapped(AbstractNetwork):
    """An Equinox model whose features are the input of one of its layers, taken in the same pass as the output.

    For `eqx.nn.MLP` the layer is `lambda model: model.layers[-1]`. The layer must run once for each example, outside of
    loops that JAX compiles, such as `jax.lax.scan`.
    """

    model: Callable[..., Any]
    where: Callable[[Any], Any] = eqx.field(static=True)

    def __init__(self, model: Callable[..., Any], where: Callable[[Any], Any]):
        """Initialize with the model and a function that selects the layer."""
        if not (isinstance(model, eqx.Module) and callable(model)):
            raise ValueError(f"`model` must be a callable Equinox module; got {type(model).__name__}.")
        layer = where(model)
        if not callable(layer):
            raise ValueError(f"`where` must select a layer of `model`, which is callable; got {type(layer).__name__}.")
        self.model = model
        self.where = where

    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output for one example, and the flattened input of the layer."""
        seen: list[Any] = []
        recorder = _Recorder(self.where(self.model), seen.append)
        output = eqx.tree_at(self.where, self.model, recorder)(x)
        if len(seen) != 1:
            raise ValueError(f"`where` must select a layer that runs once for each example; it ran {len(seen)} times.")
        return output, jnp.ravel(seen[0])


def per_example(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of one example, made of one whose last argument has a leading batch axis.

    `vmap` of it runs batches of one; where the function has no randomness between examples, that changes nothing.
    """

    def single(*args: Any) -> Any:
        *params, x = args
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], x)
        return jax.tree.map(lambda leaf: leaf[0], function(*params, batch))

    return single
