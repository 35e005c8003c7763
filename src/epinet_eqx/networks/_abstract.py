"""Conventional networks, with access to their hidden features."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree


class AbstractNetwork(eqx.Module):
    r"""A conventional network $\mu_\zeta(x)$ that lets an epinet see its features $\phi_\zeta(x)$ (Section 4.1)."""

    @abc.abstractmethod
    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output for one example, and the features beside it."""

    def __call__(self, x: PyTree[Array]) -> Float[Array, " classes"]:
        """Return the output for one example."""
        return self.with_features(x)[0]


class FunctionNetwork(AbstractNetwork):
    """A JAX function as a network: `function(x)`, or `function(params, x)` with the parameters that it reads.

    The parameters are arrays of the network, so they are saved, trained or frozen with it; arrays that the function
    hides in a closure are none of these. If `features` is not given, the function itself must return the pair
    `(output, features)`; it takes the same arguments otherwise.
    """

    function: Callable[..., Any]
    features: Callable[..., Any] | None
    params: PyTree

    def __init__(
        self, function: Callable[..., Any], features: Callable[..., Any] | None = None, *, params: PyTree = None
    ):
        """Initialize with the function, its features and its parameters, if it takes any."""
        self.function = function
        self.features = features
        # Many libraries load parameters as NumPy arrays, which no transformation of JAX would treat as parameters.
        self.params = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, params)

    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output and the features."""
        arguments = (x,) if self.params is None else (self.params, x)
        output = self.function(*arguments)
        if self.features is not None:
            return output, self.features(*arguments)
        if not (isinstance(output, tuple) and len(output) == 2):
            raise ValueError(
                "`base` must return a pair `(output, features)` when `features` is not given; "
                f"got {type(output).__name__}."
            )
        return output
