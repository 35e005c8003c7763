"""Conventional networks, with access to their hidden features."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from .._tree import Frozen


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


def as_network(base: Callable[[Any], Any], features: Callable[[Any], Any] | None = None) -> AbstractNetwork:
    """Return `base` as a network that exposes features: itself if it does already and no others are given.

    Args:
        base: any JAX callable that maps one example to its output, or to `(output, features)`.
        features: maps one example to its features.
    """
    if isinstance(base, Frozen):
        raise ValueError("`base` must be the bare network; say `freeze=True` to freeze it.")
    if features is None and isinstance(base, AbstractNetwork):
        return base
    if not callable(base):
        raise ValueError(f"`base` must be callable; got {type(base).__name__}.")
    return FunctionNetwork(base, features)
