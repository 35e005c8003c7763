"""Samples of a posterior distribution of parameters as an ENN (Section 3.2)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from .._checks import is_traced, require
from .._stack import num_stacked
from ._ensemble import Ensemble
from ._parameters import Skeleton, parameters_of


def as_arrays(tree: PyTree) -> PyTree:
    """Return `tree` with its NumPy arrays as JAX arrays: samples often come from a file or another program."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)


def _finite(leaves: list[Array]) -> Bool[Array, " particles"]:
    """Return which samples are finite in all their parameters."""
    each = [jnp.all(jnp.isfinite(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in leaves]
    return jnp.all(jnp.stack(each), axis=0)


def from_samples(
    module: Callable[[PyTree[Array]], Float[Array, " classes"]],
    samples: PyTree,
    *,
    drop_nonfinite: bool = False,
) -> Ensemble:
    """Return samples of a network's parameters as an ENN whose index picks one, all equally likely.

    A stack of samples and an ensemble are the same ENN, so this is an `Ensemble`.

    Args:
        module: any module that maps one example to its output. It gives the structure, and what is not a parameter
            (frozen arrays are repeated for each sample); the values of its parameters are not used.
        samples: the module's parameters with a leading axis, as `run_chain` returns them: a module of this structure,
            or its parameter tree.
        drop_nonfinite: whether to leave out samples of a chain that diverged instead of raising an error.
    """
    skeleton = Skeleton(module)
    stacked = parameters_of(as_arrays(samples))
    count = num_stacked("samples", stacked)
    leaves = skeleton.leaves("samples", stacked, leading=(count,))
    finite = _finite(leaves)
    if drop_nonfinite:
        if is_traced(finite):
            raise ValueError("`drop_nonfinite` must be False inside a transformation such as `jit`; got True.")
        leaves = [leaf[finite] for leaf in leaves]
        if not jnp.any(finite):
            raise ValueError(
                f"`samples` must hold a finite sample; got {finite.shape[0]} non-finite ones and no other."
            )
    else:
        bad = "" if is_traced(finite) else f"; got {int(jnp.sum(~finite))} non-finite of {count} samples"
        message = f"`samples` must be finite, but a chain diverged{bad}. Say `drop_nonfinite=True` to leave them out."
        leaves = require(leaves, ~jnp.all(finite), message)
    return Ensemble(skeleton.stacked(leaves))


def from_blackjax(
    module: Callable[[PyTree[Array]], Float[Array, " classes"]],
    states: Any,
    *,
    num_chains: int | None = None,
    drop_nonfinite: bool = False,
) -> Ensemble:
    """Return the states of a blackjax sampler as an ENN (`pip install epinet_eqx[mcmc]` brings blackjax).

    Args:
        module: the module whose parameters were sampled.
        states: the states, stacked along a leading axis as `lax.scan` stacks them, or their `position`: the module's
            parameter tree, or vectors that `split_parameters(module)` makes and rebuilds.
        num_chains: if given, there is a leading axis of this size before that of the samples; chains are joined.
        drop_nonfinite: as for `from_samples`.
    """
    positions = as_arrays(getattr(states, "position", states))
    if num_chains is not None:
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters_of(positions)):
            if leaf.ndim < 2 or leaf.shape[0] != num_chains:
                raise ValueError(
                    f"`states{jax.tree_util.keystr(path)}` must have leading axes for {num_chains} chains and their "
                    f"samples; got shape {leaf.shape}."
                )
        positions = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), parameters_of(positions))
    if eqx.is_array(positions):
        skeleton = Skeleton(module)
        if positions.ndim != 2 or positions.shape[1] != skeleton.size:
            raise ValueError(f"`states` must hold vectors of {skeleton.size} parameters; got shape {positions.shape}.")
        positions = jax.vmap(skeleton.unflatten)(positions)
    return from_samples(module, positions, drop_nonfinite=drop_nonfinite)
