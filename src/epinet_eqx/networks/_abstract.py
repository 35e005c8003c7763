"""Networks that expose their features, and models of other libraries as such networks."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._tree import as_arrays


class AbstractNetwork(eqx.Module):
    r"""A conventional network $\mu_\zeta(x)$ that lets an epinet see its features $\phi_\zeta(x)$ (Section 4.1)."""

    @property
    @abc.abstractmethod
    def feature_dim(self) -> int | None:
        """The size of the feature vector, or None if it is only known after a run on an example."""

    @abc.abstractmethod
    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output and the features for one example."""

    def __call__(self, x: PyTree[Array]) -> Float[Array, " classes"]:
        """Return the output for one example."""
        return self.with_features(x)[0]


class FunctionNetwork(AbstractNetwork):
    """A JAX function as a network: `function(x)`, or `function(params, x)` with its parameters.

    The parameters are arrays of the network, so they are saved, trained or frozen with it; arrays hidden in a closure
    are not. `features` takes the same arguments as `function`; without it, `function` returns `(output, features)`.
    """

    function: Callable[..., Any]
    features: Callable[..., Any] | None
    params: PyTree

    def __init__(
        self, function: Callable[..., Any], features: Callable[..., Any] | None = None, *, params: PyTree = None
    ):
        """Initialize with the function, its features and its parameters, each if it has any."""
        self.function = function
        self.features = features
        # Many libraries load parameters as NumPy arrays.
        self.params = as_arrays(params)

    @property
    def feature_dim(self) -> None:
        """Unknown: None."""
        return None

    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output and the features."""
        arguments = (x,) if self.params is None else (self.params, x)
        output = self.function(*arguments)
        if self.features is not None:
            return output, self.features(*arguments)
        # A model of Keras with two outputs returns a list.
        if not (isinstance(output, tuple | list) and len(output) == 2):
            found = f"an array of shape {output.shape}" if isinstance(output, jax.Array) else type(output).__name__
            raise ValueError(
                "`base` must return a pair `(output, features)` when `features` is not given (`networks.Tapped` takes "
                f"them from a layer of an Equinox model); got {found}."
            )
        return output[0], output[1]


class _Recorder(eqx.Module):
    """Replaces a layer: runs it and records its input."""

    layer: Callable[..., Any]
    record: Callable[[Any], None] = eqx.field(static=True)

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the layer."""
        self.record(x)
        return self.layer(x, *args, **kwargs)


class Tapped(AbstractNetwork):
    """An Equinox model whose features are the input of one of its layers, taken in the same pass as the output.

    For `eqx.nn.MLP` the layer is `lambda model: model.layers[-1]`. The layer must run once per example, and outside of
    compiled loops such as `jax.lax.scan`.
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

    @property
    def feature_dim(self) -> None:
        """Unknown: None."""
        return None

    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output for one example, and the flattened input of the layer."""
        seen: list[Any] = []
        recorder = _Recorder(self.where(self.model), seen.append)
        output = eqx.tree_at(self.where, self.model, recorder)(x)
        if len(seen) != 1:
            raise ValueError(f"`where` must select a layer that runs once for each example; it ran {len(seen)} times.")
        return output, jnp.ravel(seen[0])


def per_example(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function whose last argument has a leading batch axis into a function of one example.

    Its `vmap` runs batches of one, which changes nothing unless the function mixes the examples of a batch.
    """

    def single(*args: Any) -> Any:
        *params, x = args
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], x)
        return jax.tree.map(lambda leaf: leaf[0], function(*params, batch))

    return single
