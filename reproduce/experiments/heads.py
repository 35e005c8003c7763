"""What several image protocols put on a frozen network: a head without an index, and conv nets as a prior."""

from typing import Any

from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from epinet_eqx import AbstractENN, Frozen
from epinet_eqx.data import stored_base
from epinet_eqx.epinet import Reads, TermInput, conv_prior
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.networks import MLP, AbstractNetwork, FunctionNetwork


class WithHead(AbstractNetwork):
    """A frozen network plus an MLP on its features: the control with an epinet's capacity and without an index."""

    base: Frozen[AbstractNetwork]
    head: MLP

    @property
    def feature_dim(self) -> int | None:
        """The size of the features of the base."""
        return self.base.content.feature_dim

    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the sum of both outputs, and the features of the base."""
        output, features = self.base.value.with_features(x)
        return output + self.head(features), features


def on_stored(head: MLP) -> WithHead:
    """Return a head on stored outputs."""
    return WithHead(Frozen(FunctionNetwork(stored_base)), head)


class StoredBasis(AbstractENN):
    """A term linear in the index whose members' outputs come with the input: a conv prior, computed once per image."""

    index: GaussianIndex

    def embed(self, x: TermInput) -> Float[Array, "index classes"]:
        """Return the outputs of all members."""
        return x.x["conv"]

    def heads(
        self, embedding: Float[Array, "index classes"], zs: Float[Array, "samples index"]
    ) -> Float[Array, "samples classes"]:
        """Return the combinations at many indices."""
        return zs @ embedding


def conv_networks(
    image_shape: tuple[int, int, int],
    index_dim: int,
    num_classes: int,
    *,
    key: PRNGKeyArray,
    **options: Any,
) -> AbstractENN:
    """Return the networks of a conv prior, as an ENN on images whose embedding are their outputs.

    Args:
        image_shape: shape of an image.
        index_dim: number of networks.
        num_classes: number of classes.
        key: random key.
        options: channels, kernels and strides.
    """
    term = conv_prior(image_shape, index_dim, num_classes, **options, key=key).enn.content
    assert isinstance(term, Reads)
    return term.enn
