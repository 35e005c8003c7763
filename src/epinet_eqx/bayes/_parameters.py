"""The parameters of a module as one vector, and back: the variable that a BNN has a distribution of (Section 3.2)."""

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._checks import check_shape
from .._tree import Frozen, trainable_mask


def parameters_of(module: PyTree) -> PyTree:
    """Return the parameters of a module, its unfrozen floating-point arrays, with None in place of the rest."""
    return eqx.filter(module, trainable_mask(module))


def _is_any_array(leaf: Any) -> bool:
    """Return whether `leaf` is an array, of JAX or of NumPy."""
    return eqx.is_array(leaf) or isinstance(leaf, np.ndarray)


class Skeleton(eqx.Module):
    r"""A module without its parameters $\theta$: `skeleton.build(theta)` puts them back.

    The parameters are the floating-point arrays outside `Frozen` parts; the skeleton keeps the rest of the module. It
    has nothing trainable, so an ENN that holds one trains only the distribution of the parameters. Leaves that are not
    arrays, such as activation functions, are static, so a skeleton passes through `jit` and `scan`.
    """

    arrays: Frozen[PyTree]
    others: tuple[Any, ...] = eqx.field(static=True)
    others_treedef: Any = eqx.field(static=True)
    treedef: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    dtypes: tuple[jnp.dtype, ...] = eqx.field(static=True)
    paths: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, module: PyTree):
        """Initialize from a module; the values of its parameters are not kept."""
        parameters, rest = eqx.partition(module, trainable_mask(module))
        with_paths, self.treedef = jax.tree_util.tree_flatten_with_path(parameters)
        if not with_paths:
            raise ValueError(
                f"`module` must have floating-point arrays that are not frozen; got {type(module).__name__}."
            )
        arrays, others = eqx.partition(rest, _is_any_array)
        self.arrays = Frozen(arrays)
        leaves, self.others_treedef = jax.tree.flatten(others)
        self.others = tuple(leaves)
        self.shapes = tuple(leaf.shape for _, leaf in with_paths)
        self.dtypes = tuple(leaf.dtype for _, leaf in with_paths)
        self.paths = tuple(jax.tree_util.keystr(path) for path, _ in with_paths)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of entries of each parameter array."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(self.sizes)

    def flatten(self, parameters: PyTree) -> Float[Array, " parameters"]:
        """Return the parameters of a module, or of its parameter tree, as one vector."""
        return jnp.concatenate([leaf.ravel().astype(float) for leaf in self.leaves("parameters", parameters)])

    def unflatten(self, vector: Float[Array, " parameters"]) -> Any:
        """Return the tree of parameters: the module with None in place of the rest."""
        check_shape("vector", vector, (self.size,))
        ends = list(itertools.accumulate(self.sizes))[:-1]
        pieces = zip(jnp.split(vector, ends), self.shapes, self.dtypes, strict=True)
        return jax.tree.unflatten(self.treedef, [piece.reshape(shape).astype(dtype) for piece, shape, dtype in pieces])

    def combine(self, parameters: PyTree, *, name: str = "parameters") -> Any:
        """Return the module with the parameters of this tree; `name` is the argument that errors mention."""
        return self._combine(jax.tree.unflatten(self.treedef, self.leaves(name, parameters)), self.arrays.value)

    def build(self, vector: Float[Array, " parameters"]) -> Any:
        """Return the module with these parameters."""
        return self._combine(self.unflatten(vector), self.arrays.value)

    def _combine(self, parameters: PyTree, arrays: PyTree) -> Any:
        """Return the module with these parameters and other arrays."""
        return eqx.combine(parameters, arrays, jax.tree.unflatten(self.others_treedef, self.others))

    def stacked(self, leaves: list[Array]) -> Any:
        """Return the module with a leading axis on every array: these parameters, the other arrays repeated."""
        repeat = lambda leaf: jnp.broadcast_to(leaf, (leaves[0].shape[0], *leaf.shape))  # noqa: E731
        return self._combine(jax.tree.unflatten(self.treedef, leaves), jax.tree.map(repeat, self.arrays.content))

    def leaves(self, name: str, tree: PyTree, *, leading: tuple[int, ...] = ()) -> list[Array]:
        """Return the parameter arrays of `tree` in order; raise unless they are this module's.

        Args:
            name: the argument that errors mention.
            tree: a module of this structure, or the tree of its parameters.
            leading: leading axes of each array, such as the number of particles.
        """
        with_paths = jax.tree_util.tree_leaves_with_path(parameters_of(tree))
        found = {jax.tree_util.keystr(path): leaf for path, leaf in with_paths}
        for path, shape in zip(self.paths, self.shapes, strict=True):
            if path not in found:
                raise ValueError(f"`{name}` must have a floating-point array `{path}`; got only {sorted(found)}.")
            if found[path].shape != (*leading, *shape):
                raise ValueError(f"`{name}{path}` must have shape {(*leading, *shape)}; got {found[path].shape}.")
        extra = sorted(set(found) - set(self.paths))
        if extra:
            raise ValueError(f"`{name}` must have no arrays but {list(self.paths)}; got also {extra}.")
        return [found[path] for path in self.paths]


def split_parameters(module: PyTree) -> tuple[Float[Array, " parameters"], Skeleton]:
    """Return the parameters of `module` as one vector, and a function that rebuilds the module from such a vector."""
    skeleton = Skeleton(module)
    return skeleton.flatten(module), skeleton
