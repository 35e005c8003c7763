"""The learnable epinet of Section 4."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import check_positive, check_shape, check_sizes
from .._init import Initializer, glorot_uniform
from ..networks import Linear
from ._term import AbstractTerm


class MLPEpinet(AbstractTerm):
    r"""The epinet $\mathtt{mlp}_\eta([\tilde x, z])^\top z$ of Eq. (6).

    The MLP's output is read as an `(index_dim, num_classes)` matrix and contracted with `z`, so the contribution
    vanishes at `z = 0` whatever the weights.

    The first layer is linear in $[\tilde x, z]$, so its product with the features is shared by all indices: it is the
    embedding. The last layer is linear in its own weights, so `heads` contracts them with `z` before they meet the
    hidden units, once per index and for all inputs:
    $\sum_d z_d (W_d h + b_d) = (\sum_d z_d W_d) h + \sum_d z_d b_d$.
    """

    layers: tuple[Linear, ...]
    feature_dim: int = eqx.field(static=True)
    index_dim: int = eqx.field(static=True)
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
        keys = jr.split(key, len(sizes) - 1)
        self.layers = tuple(
            Linear(size_in, size_out, initializer=initializer, key=layer_key)
            for size_in, size_out, layer_key in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.feature_dim = feature_dim
        self.index_dim = index_dim
        self.num_classes = num_classes
        self.activation = activation

    def embed(self, x: PyTree[Array], features: Float[Array, " features"]) -> Float[Array, " units"]:
        """Return the share of the features in the first layer, its bias included."""
        check_shape("features", features, (self.feature_dim,))
        first = self.layers[0]
        return first.weight[:, : self.feature_dim] @ features + first.bias

    def heads(
        self, embedding: Float[Array, " units"], zs: Float[Array, "samples index"]
    ) -> Float[Array, "samples classes"]:
        """Return the contributions at many indices by the exact contraction."""
        check_shape("zs", zs, (zs.shape[0], self.index_dim))
        index_share = zs @ self.layers[0].weight[:, self.feature_dim :].T
        if len(self.layers) == 1:
            # No hidden layer: the features meet z in a matrix product; only the index's own share is quadratic in z.
            matrix = embedding.reshape(self.index_dim, self.num_classes)
            quadratic = index_share.reshape(-1, self.index_dim, self.num_classes)
            return zs @ matrix + jnp.einsum("md,mdc->mc", zs, quadratic)
        units = self.activation(embedding[None, :] + index_share)
        for layer in self.layers[1:-1]:
            units = self.activation(units @ layer.weight.T + layer.bias[None, :])
        last = self.layers[-1]
        weight = last.weight.reshape(self.index_dim, self.num_classes, -1)
        bias = last.bias.reshape(self.index_dim, self.num_classes)
        contracted = jnp.tensordot(zs, weight, axes=1)
        return jnp.einsum("mch,mh->mc", contracted, units) + zs @ bias
