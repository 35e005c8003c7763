"""Conventional networks, with access to their hidden features."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
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
    """Any JAX callable as a network: an Equinox module, a bound Flax or Haiku apply function, a plain function.

    If `features` is not given, the callable itself must return the pair `(output, features)`.
    """

    function: Callable[[Any], Any]
    features: Callable[[Any], Any] | None = None

    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output and the features."""
        output = self.function(x)
        if self.features is not None:
            return output, self.features(x)
        if not (isinstance(output, tuple) and len(output) == 2):
            raise ValueError(
                "`base` must return a pair `(output, features)` when `features` is not given; "
                f"got {type(output).__name__}."
            )
        return output
