"""Prior networks: the fixed part of an epinet (Section 4.1)."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import check_positive, check_scalar, check_shape
from .._init import Initializer, truncated_normal
from .._tree import Frozen
from ..networks import MLP, AbstractNetwork, ConvNet
from ._learnable import MLPEpinet
from ._term import AbstractTerm


class NetworkEnsemble(AbstractTerm):
    r"""An ensemble of networks combined linearly in the index: $\sum_i z_i \, p^i(x)$ (Appendix F.3).

    The members' outputs are a basis that is computed once per input; each index costs one small matrix product.
    """

    members: AbstractNetwork
    index_dim: int = eqx.field(static=True)
    reads: Literal["input", "features"] = eqx.field(static=True)

    def __init__(
        self,
        make_member: Callable[[PRNGKeyArray], AbstractNetwork],
        index_dim: int,
        *,
        reads: Literal["input", "features"] = "input",
        key: PRNGKeyArray,
    ):
        """Initialize the ensemble.

        Args:
            make_member: makes one member from a key.
            index_dim: dimension of the index, which is the number of members.
            reads: whether the members see the input itself or the features of the base network.
            key: random key.
        """
        check_positive("index_dim", index_dim)
        if reads not in ("input", "features"):
            raise ValueError(f'`reads` must be "input" or "features"; got {reads!r}.')
        self.members = eqx.filter_vmap(make_member)(jr.split(key, index_dim))
        self.index_dim = index_dim
        self.reads = reads

    def embed(self, x: PyTree[Array], features: Float[Array, " features"]) -> Float[Array, "index classes"]:
        """Return the outputs of all members."""
        seen = x if self.reads == "input" else features
        return eqx.filter_vmap(lambda member: member(seen))(self.members)

    def heads(
        self, embedding: Float[Array, "index classes"], zs: Float[Array, "samples index"]
    ) -> Float[Array, "samples classes"]:
        """Return the combinations at many indices."""
        check_shape("zs", zs, (zs.shape[0], self.index_dim))
        return zs @ embedding


class PriorNetwork(AbstractTerm):
    r"""A prior network $\sigma^P$ of Eq. (5): a frozen term times a scale.

    Its weights are arrays of the model: they are saved with it, and no step and no weight decay moves them.
    """

    network: Frozen[AbstractTerm]
    scale: Frozen[Float[Array, ""]]

    def __init__(self, network: AbstractTerm, scale: float | Float[Array, ""] = 1.0):
        """Initialize with a term and its scale, an array so that sweeping it compiles once."""
        if not isinstance(network, AbstractTerm):
            raise ValueError(
                f"`network` must be a term such as a `NetworkEnsemble` or an `MLPEpinet`; got {type(network).__name__}."
            )
        self.network = Frozen(network)
        self.scale = Frozen(check_scalar("scale", jnp.asarray(scale, dtype=float), minimum=0.0))

    def embed(self, x: PyTree[Array], features: Float[Array, " features"]) -> PyTree[Array]:
        """Return the embedding of the term."""
        return jax.lax.stop_gradient(self.network.value.embed(x, features))

    def heads(self, embedding: PyTree[Array], zs: Float[Array, "samples index"]) -> Float[Array, "samples classes"]:
        """Return the scaled contributions at many indices."""
        return self.scale.value * self.network.value.heads(embedding, zs)


def mlp_prior(
    in_dim: int,
    index_dim: int,
    num_classes: int,
    *,
    hidden: tuple[int, ...] = (5, 5),
    scale: float | Float[Array, ""] = 1.0,
    reads: Literal["input", "features"] = "input",
    initializer: Initializer = truncated_normal,
    key: PRNGKeyArray,
) -> PriorNetwork:
    """Return an ensemble of small MLPs as a prior, as the Neural Testbed has it (Appendix F.3)."""

    def member(member_key: PRNGKeyArray) -> MLP:
        return MLP(in_dim, num_classes, hidden, feature_layers=(), initializer=initializer, key=member_key)

    return PriorNetwork(NetworkEnsemble(member, index_dim, reads=reads, key=key), scale)


def conv_prior(
    image_shape: tuple[int, int, int],
    index_dim: int,
    num_classes: int,
    *,
    channels: tuple[int, ...] = (4, 8, 4),
    kernels: tuple[int, ...] = (5, 5, 5),
    strides: tuple[int, ...] = (2, 2, 2),
    scale: float | Float[Array, ""] = 1.0,
    initializer: Initializer = truncated_normal,
    key: PRNGKeyArray,
) -> PriorNetwork:
    """Return an ensemble of small conv nets on the image as a prior; the defaults are CIFAR's (Appendix G.3)."""

    def member(member_key: PRNGKeyArray) -> ConvNet:
        return ConvNet(
            image_shape,
            num_classes,
            channels=channels,
            kernels=kernels,
            strides=strides,
            initializer=initializer,
            key=member_key,
        )

    return PriorNetwork(NetworkEnsemble(member, index_dim, key=key), scale)


def matched_prior(
    learnable: MLPEpinet,
    *,
    scale: float | Float[Array, ""] = 1.0,
    initializer: Initializer = truncated_normal,
    key: PRNGKeyArray,
) -> PriorNetwork:
    """Return a prior of the same architecture as the learnable epinet, with weights of its own (Appendix G.1)."""
    hidden = tuple(layer.bias.shape[0] for layer in learnable.layers[:-1])
    network = MLPEpinet(
        learnable.feature_dim,
        learnable.index_dim,
        learnable.num_classes,
        hidden=hidden,
        activation=learnable.activation,
        initializer=initializer,
        key=key,
    )
    return PriorNetwork(network, scale)
