"""The terms of an epinet: the learnable one, and the networks of its priors (Section 4.1 and Appendix F.3)."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import Scalar, check_positive, check_shape, check_sizes
from .._enn import AbstractENN, Indices
from .._init import Initializer, glorot_uniform, truncated_normal
from .._xla import hide_constant
from ..combinators import AbstractWrapper, Prior
from ..indices import GaussianIndex
from ..networks import MLP, AbstractNetwork, ConvNet, Linear, linear_layers


class TermInput(NamedTuple):
    r"""The input of a term of an epinet: the example, and the features $\tilde x$ of the base network there."""

    x: PyTree[Array]
    features: Float[Array, " features"]


class Reads(AbstractWrapper):
    """Any ENN as a term of an epinet: it reads the example, or the features of the base network."""

    enn: AbstractENN
    part: Literal["input", "features"] = eqx.field(static=True)

    def __init__(self, enn: AbstractENN, part: Literal["input", "features"]):
        """Initialize with the ENN and the part of a `TermInput` that is its input."""
        if part not in ("input", "features"):
            raise ValueError(f'`reads` must be "input" or "features"; got {part!r}.')
        self.enn = enn
        self.part = part

    def embed(self, x: TermInput) -> PyTree[Array]:
        """Return the embedding of the ENN at its part of the input."""
        return self.enn.embed(x.x if self.part == "input" else x.features)

    def heads(self, embedding: PyTree[Array], zs: Indices) -> Float[Array, "samples classes"]:
        """Return the outputs of the ENN."""
        return self.enn.heads(embedding, zs)


class MLPEpinet(AbstractENN):
    r"""The epinet $\mathtt{mlp}_\eta([\tilde x, z])^\top z$ of Eq. (6).

    The MLP's output is read as an `(index_dim, num_classes)` matrix and contracted with `z`, so the contribution
    vanishes at `z = 0` whatever the weights. As a term of an epinet it has the epinet's index; on its own, $N(0, I)$.

    The first layer is linear in $[\tilde x, z]$, so all indices share its product with the features: that is the
    embedding. The last layer is linear in its own weights, so `heads` contracts them with `z` before they meet the
    hidden units, once per index for all inputs:
    $\sum_d z_d (W_d h + b_d) = (\sum_d z_d W_d) h + \sum_d z_d b_d$.
    """

    layers: tuple[Linear, ...]
    index: GaussianIndex
    feature_dim: int = eqx.field(static=True)
    num_classes: int = eqx.field(static=True)
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        feature_dim: int,
        index_dim: int,
        num_classes: int,
        *,
        hidden: tuple[int, ...] = (50,),
        activation: Callable[[Array], Array] = jax.nn.relu,
        initializer: Initializer = glorot_uniform,
        key: PRNGKeyArray,
    ):
        """Initialize the epinet.

        Args:
            feature_dim: size of the feature vector taken from the base network.
            index_dim: dimension of the epistemic index.
            num_classes: number of outputs.
            hidden: sizes of the hidden layers; may be empty.
            activation: activation of the hidden layers.
            initializer: draws the weight and bias of each layer.
            key: random key.
        """
        check_positive("feature_dim", feature_dim)
        check_positive("index_dim", index_dim)
        check_positive("num_classes", num_classes)
        check_sizes("hidden", hidden)
        sizes = (feature_dim + index_dim, *hidden, index_dim * num_classes)
        self.layers = linear_layers(sizes, initializer=initializer, key=key)
        self.feature_dim = feature_dim
        self.index = GaussianIndex(index_dim)
        self.num_classes = num_classes
        self.activation = activation

    @property
    def index_dim(self) -> int:
        """The dimension of the index."""
        return self.index.index_dim

    def embed(self, x: TermInput) -> Float[Array, " units"]:
        """Return the share of the features in the first layer, its bias included."""
        check_shape("features", x.features, (self.feature_dim,))
        first = self.layers[0]
        return hide_constant(first.weight, x.features)[:, : self.feature_dim] @ x.features + first.bias

    def heads(
        self, embedding: Float[Array, " units"], zs: Float[Array, "samples index"]
    ) -> Float[Array, "samples classes"]:
        """Return the contributions at many indices by the exact contraction."""
        check_shape("zs", zs, (zs.shape[0], self.index_dim))
        index_share = zs @ hide_constant(self.layers[0].weight, zs)[:, self.feature_dim :].T
        if len(self.layers) == 1:
            # No hidden layer: the features meet z in a matrix product; only the index's own share is quadratic in z.
            matrix = embedding.reshape(self.index_dim, self.num_classes)
            quadratic = index_share.reshape(-1, self.index_dim, self.num_classes)
            return zs @ matrix + jnp.einsum("md,mdc->mc", zs, quadratic)
        units = self.activation(embedding[None, :] + index_share)
        for layer in self.layers[1:-1]:
            units = self.activation(units @ hide_constant(layer.weight, units).T + layer.bias[None, :])
        last = self.layers[-1]
        weight = hide_constant(last.weight, zs).reshape(self.index_dim, self.num_classes, -1)
        bias = hide_constant(last.bias, zs).reshape(self.index_dim, self.num_classes)
        contracted = jnp.tensordot(zs, weight, axes=1)
        # Units first: mapped over inputs, the classes are then contiguous in the result, which every use of it reads
        # along (`benchmarks/bench_streaming.py`: a fifth less time).
        return jnp.einsum("mh,mch->mc", units, contracted) + zs @ bias


class NetworkEnsemble(AbstractENN):
    r"""An ensemble of networks combined linearly in the index: $\sum_i z_i \, p^i(x)$ (Appendix F.3).

    The members' outputs are a basis that is computed once per input; each index costs one small matrix product. As a
    term of an epinet, wrap it in `Reads`.
    """

    members: AbstractNetwork
    index: GaussianIndex

    def __init__(self, make_member: Callable[[PRNGKeyArray], AbstractNetwork], index_dim: int, *, key: PRNGKeyArray):
        """Initialize the ensemble.

        Args:
            make_member: makes one member from a key.
            index_dim: dimension of the index, which is the number of members.
            key: random key.
        """
        self.index = GaussianIndex(index_dim)
        self.members = eqx.filter_vmap(make_member)(jr.split(key, index_dim))

    def embed(self, x: PyTree[Array]) -> Float[Array, "index classes"]:
        """Return the outputs of all members."""
        return eqx.filter_vmap(lambda member: member(x))(self.members)

    def heads(
        self, embedding: Float[Array, "index classes"], zs: Float[Array, "samples index"]
    ) -> Float[Array, "samples classes"]:
        """Return the combinations at many indices."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))
        return zs @ embedding


def mlp_prior(
    in_dim: int,
    index_dim: int,
    num_classes: int,
    *,
    hidden: tuple[int, ...] = (5, 5),
    scale: Scalar = 1.0,
    reads: Literal["input", "features"] = "input",
    initializer: Initializer = truncated_normal,
    key: PRNGKeyArray,
) -> Prior:
    """Return an ensemble of small MLPs as a prior: the Neural Testbed's (Appendix F.3)."""

    def member(member_key: PRNGKeyArray) -> MLP:
        return MLP(in_dim, num_classes, hidden, feature_layers=(), initializer=initializer, key=member_key)

    return Prior(Reads(NetworkEnsemble(member, index_dim, key=key), reads), scale)


def conv_prior(
    image_shape: tuple[int, int, int],
    index_dim: int,
    num_classes: int,
    *,
    channels: tuple[int, ...] = (4, 8, 4),
    kernels: tuple[int, ...] = (5, 5, 5),
    strides: tuple[int, ...] = (2, 2, 2),
    scale: Scalar = 1.0,
    initializer: Initializer = truncated_normal,
    key: PRNGKeyArray,
) -> Prior:
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

    return Prior(Reads(NetworkEnsemble(member, index_dim, key=key), "input"), scale)


def matched_prior(
    learnable: MLPEpinet, *, scale: Scalar = 1.0, initializer: Initializer = truncated_normal, key: PRNGKeyArray
) -> Prior:
    """Return a prior with the architecture of the learnable epinet and its own weights (Appendix G.1)."""
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
    return Prior(network, scale)
