"""The interface of an epistemic neural network (Section 3)."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PyTree, Shaped

from ._checks import check_scalar
from ._tree import Frozen
from .indices import AbstractIndex


class AbstractENN(eqx.Module):
    r"""An epistemic neural network $f_\theta(x, z)$ with its reference distribution $P_Z$, in two stages.

    `f(x, z) = head(embed(x), z)`: `embed` is everything that does not depend on the index and runs once per input,
    `head` is the rest. All methods take one example; batches are `vmap`s at the call site.
    """

    index: eqx.AbstractVar[AbstractIndex]

    @abc.abstractmethod
    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return what all indices share of the prediction at one input."""

    @abc.abstractmethod
    def head(self, embedding: PyTree[Array], z: Shaped[Array, "..."]) -> Float[Array, " classes"]:
        """Return the output (logits, or the mean of a regression) at one index."""

    @abc.abstractmethod
    def heads(self, embedding: PyTree[Array], zs: Shaped[Array, "samples ..."]) -> Float[Array, "samples classes"]:
        """Return the outputs at many indices: `head` mapped over `zs`, by the cheapest exact way there is."""

    def __call__(self, x: PyTree[Array], z: Shaped[Array, "..."]) -> Float[Array, " classes"]:
        r"""Return $f_\theta(x, z)$."""
        return self.head(self.embed(x), z)


def map_head(
    enn: AbstractENN, embedding: PyTree[Array], zs: Shaped[Array, "samples ..."]
) -> Float[Array, "samples classes"]:
    """Map `enn.head` over `zs`: the `heads` of an ENN that has no cheaper way."""
    return jax.vmap(enn.head, in_axes=(None, 0))(embedding, zs)


def num_outputs(enn: AbstractENN, x: PyTree[Array]) -> int:
    """Return the number of classes (or regression outputs) of `enn` at the single example `x`, without computing it."""
    key = jax.eval_shape(jr.key, jax.ShapeDtypeStruct((), jnp.uint32))
    z = jax.eval_shape(lambda key: enn.index.sample(key=key), key)
    return eqx.filter_eval_shape(enn, x, z).shape[0]


class Tempered(AbstractENN):
    """An ENN whose outputs are divided by a temperature; below one sharpens, above one flattens."""

    enn: AbstractENN
    temperature: Frozen[Float[Array, ""]]

    def __init__(self, enn: AbstractENN, temperature: float | Float[Array, ""]):
        """Initialize with the ENN and its temperature, which may be a traced array: sweeping it compiles once."""
        self.enn = enn
        self.temperature = Frozen(check_scalar("temperature", jnp.asarray(temperature, dtype=float), minimum=1e-6))

    @property
    def index(self) -> AbstractIndex:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The index of the ENN."""
        return self.enn.index

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding of the ENN."""
        return self.enn.embed(x)

    def head(self, embedding: PyTree[Array], z: Shaped[Array, "..."]) -> Float[Array, " classes"]:
        """Return the tempered output at one index."""
        return self.enn.head(embedding, z) / self.temperature.value

    def heads(self, embedding: PyTree[Array], zs: Shaped[Array, "samples ..."]) -> Float[Array, "samples classes"]:
        """Return the tempered outputs at many indices."""
        return self.enn.heads(embedding, zs) / self.temperature.value
