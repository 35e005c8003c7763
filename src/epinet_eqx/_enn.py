"""The interface of an epistemic neural network (Section 3)."""

import abc
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PyTree, Shaped

from ._checks import check_shape
from .indices import AbstractIndex

Indices: TypeAlias = PyTree[Shaped[Array, "samples ..."]]
"""Many indices, along the leading axis of each array; most kinds of index are a single array."""


class AbstractENN(eqx.Module):
    r"""An epistemic neural network $f_\theta(x, z)$ with its reference distribution $P_Z$, in two stages.

    `embed` computes everything that does not depend on the index and runs once per input; `heads` computes the rest at
    many indices, and `head` is `heads` at one. All methods take one example; batches are `vmap`s at the call site.
    """

    index: eqx.AbstractVar[AbstractIndex]

    @abc.abstractmethod
    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the part of the prediction at one input that all indices share."""

    @abc.abstractmethod
    def heads(self, embedding: PyTree[Array], zs: Indices) -> Float[Array, "samples classes"]:
        """Return the outputs (logits, or the mean of a regression) at many indices, in the cheapest exact way."""

    def head(self, embedding: PyTree[Array], z: PyTree[Shaped[Array, "..."]]) -> Float[Array, " classes"]:
        """Return the output at one index."""
        if eqx.is_array(z):
            check_shape("z", z, self.index.shape)
        return self.heads(embedding, jax.tree.map(lambda leaf: leaf[None], z))[0]

    def __call__(self, x: PyTree[Array], z: PyTree[Shaped[Array, "..."]]) -> Float[Array, " classes"]:
        r"""Return $f_\theta(x, z)$."""
        return self.head(self.embed(x), z)


def check_enn(name: str, enn: Any) -> None:
    """Raise unless `enn` is an ENN: networks, and results of training that hold one, have no index."""
    if not isinstance(enn, AbstractENN):
        raise ValueError(
            f"`{name}` must be an ENN, such as `attach` or `bayes.as_enn` returns; got {type(enn).__name__}."
        )


def num_outputs(enn: AbstractENN, x: PyTree[Array]) -> int:
    """Return the number of classes (or regression outputs) of `enn` at the single example `x`, without computing it."""
    key = jax.eval_shape(jr.key, jax.ShapeDtypeStruct((), jnp.uint32))
    z = jax.eval_shape(lambda key: enn.index.sample(key=key), key)
    return eqx.filter_eval_shape(enn, x, z).shape[0]
