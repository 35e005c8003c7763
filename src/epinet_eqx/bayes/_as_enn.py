"""Convert a model to an ENN (Section 3.2)."""

from typing import Any

import equinox as eqx
import jax

from .._enn import AbstractENN
from .._tree import as_arrays
from ._ensemble import Deterministic, Ensemble, from_samples
from ._gaussian import SWAG, SWAGState
from ._parameters import parameters_of


def _is_network(obj: Any) -> bool:
    """Return whether `obj` is a module that maps an example to its output."""
    return isinstance(obj, eqx.Module) and callable(obj) and not isinstance(obj, AbstractENN)


def _ranks(tree: Any) -> list[int]:
    """Return the number of axes of each array of `tree`."""
    return [leaf.ndim for leaf in jax.tree.leaves(tree)]


def _has_samples(obj: tuple[Any, ...]) -> bool:
    """Return whether `obj` is a network with stacked parameters, rather than several networks."""
    if len(obj) != 2 or not _is_network(obj[0]):
        return False
    network, samples = obj
    if not _is_network(samples):
        return True
    # A module of samples also looks like a network, but its arrays have one more axis.
    samples = parameters_of(as_arrays(samples))
    return _ranks(samples) == [rank + 1 for rank in _ranks(parameters_of(network))]


def as_enn(obj: Any) -> AbstractENN:
    """Convert a model to an ENN.

    Args:
        obj: one of

            - an ENN, which is returned unchanged;
            - a network, any Equinox module that maps one example to its output: `Deterministic`;
            - a list or tuple of networks of one structure, such as a deep ensemble: `Ensemble.of`;
            - a pair of a network and samples of its parameters, stacked along a leading axis: `from_samples`;
            - a `SWAGState`: `SWAG`.

            A network with dropout, a mean-field distribution or a hypermodel cannot be recognized: use `MCDropout`,
            `BayesByBackprop` or `LinearHypermodel`, or `Transport` for any other distribution of parameters.
    """
    if isinstance(obj, AbstractENN):
        return obj
    if isinstance(obj, SWAGState):
        return SWAG(obj)
    if _is_network(obj):
        return Deterministic(obj)
    if isinstance(obj, tuple) and _has_samples(obj):
        return from_samples(*obj)
    if isinstance(obj, list | tuple) and obj and all(_is_network(part) for part in obj):
        return Ensemble.of(obj)
    found = type(obj).__name__
    if isinstance(obj, list | tuple):
        found = f"{found} of {[type(part).__name__ for part in obj]}"
    raise TypeError(
        "`obj` must be an ENN, a network (a callable Equinox module; `FunctionNetwork` makes one of a function), "
        f"a list of networks, a pair `(network, samples)` or a `SWAGState`; got {found}."
    )
