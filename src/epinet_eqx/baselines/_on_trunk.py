"""An ENN on the features of a network (Section 6)."""

from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from .._enn import AbstractENN
from .._tree import Frozen, unwrap
from ..indices import AbstractIndex
from ..networks import MLP, AbstractNetwork, AbstractStatefulNetwork, ConvNet, ResNet

_N = TypeVar("_N", bound=AbstractNetwork | AbstractStatefulNetwork)


class OnTrunk(AbstractENN):
    """An ENN whose input is the features of a network: `embed` is that of the ENN after the trunk.

    The two are trained together, unless the trunk is `Frozen`. The trunk's own output is not used (see `headless`). A
    trunk with running statistics is trained with the bare ENN by `scale.TrunkObjective`; `with_statistics` then makes
    the trunk of this class.
    """

    trunk: AbstractNetwork | Frozen[AbstractNetwork]
    enn: AbstractENN

    def __init__(self, trunk: AbstractNetwork | Frozen[AbstractNetwork], enn: AbstractENN):
        """Initialize with a network, `Frozen` if it is not to be trained, and an ENN of its features."""
        self.trunk = trunk
        self.enn = enn

    @property
    def index(self) -> AbstractIndex:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The index of the ENN."""
        return self.enn.index

    def features(self, x: PyTree[Array]) -> Float[Array, " features"]:
        """Return what the ENN sees of one example."""
        return unwrap(self.trunk).with_features(x)[1]

    def with_enn(self, enn: AbstractENN) -> "OnTrunk":
        """Return another ENN on the same trunk."""
        return OnTrunk(self.trunk, enn)

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Run the trunk, and the index-free part of the ENN."""
        return self.enn.embed(self.features(x))

    def heads(self, embedding: PyTree[Array], zs: Shaped[Array, "samples ..."]) -> Float[Array, "samples classes"]:
        """Return the outputs at many indices, as the ENN has them."""
        return self.enn.heads(embedding, zs)


def headless(network: _N) -> _N:
    """Return an `MLP`, `ConvNet` or `ResNet` whose output is empty: a trunk without parameters that nobody uses.

    Its features are as they were. The parameters that are left are those that count in a comparison of costs.
    """

    def last(network: Any) -> Any:
        return network.layers[-1] if isinstance(network, MLP) else network.linear

    if not isinstance(network, MLP | ConvNet | ResNet):
        raise TypeError(f"`network` must be an `MLP`, a `ConvNet` or a `ResNet`; got {type(network).__name__}.")
    weight, bias = last(network).weight, last(network).bias
    # Axes before these two are those of a stack of networks.
    empty = jnp.zeros((*weight.shape[:-2], 0, weight.shape[-1]), weight.dtype)
    none = jnp.zeros((*bias.shape[:-1], 0), bias.dtype)
    return eqx.tree_at(lambda network: (last(network).weight, last(network).bias), network, (empty, none))
