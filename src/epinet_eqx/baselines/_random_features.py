"""Random cosine features of a Gaussian kernel, with orthogonal directions (Yu et al., 2016)."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import check_positive, check_scalar, check_shape
from .._keys import named_keys


def _orthogonal_directions(num_directions: int, dim: int, *, key: PRNGKeyArray) -> Float[Array, "directions dim"]:
    """Return unit vectors, orthogonal to each other in groups of at most `dim`, each uniform on the sphere."""
    group = min(dim, num_directions)
    num_groups = -(-num_directions // group)
    q, r = jnp.linalg.qr(jr.normal(key, (num_groups, dim, group)))
    # The signs that make the decomposition unique also make its result uniform.
    q = q * jnp.sign(jnp.diagonal(r, axis1=1, axis2=2))[:, None, :]
    return jnp.swapaxes(q, 1, 2).reshape(num_groups * group, dim)[:num_directions]


class RandomFeatures(eqx.Module):
    r"""$\Phi(h) = \cos(W h + b)$: rows of $W$ are normal with standard deviation `scale`, orthogonal in groups.

    $2 \Phi(h)^\top \Phi(h') / D$ is about $\exp(-s^2 \|h - h'\|^2 / 2)$, with $D$ features and $s$ the scale.
    """

    weight: Float[Array, "random features"]
    bias: Float[Array, " random"]

    def __init__(
        self, feature_dim: int, num_features: int, *, scale: float | Float[Array, ""] = 0.05, key: PRNGKeyArray
    ):
        """Initialize from sizes.

        Args:
            feature_dim: size of the input.
            num_features: number of random features.
            scale: standard deviation of the entries of $W$, one over the length scale of the kernel.
            key: random key.
        """
        check_positive("feature_dim", feature_dim)
        check_positive("num_features", num_features)
        value = check_scalar("scale", jnp.asarray(scale, dtype=float), minimum=0.0)
        direction_key, norm_key, bias_key = named_keys(key, "directions", "norms", "bias")
        directions = _orthogonal_directions(num_features, feature_dim, key=direction_key)
        # A normal vector is a uniform direction times the norm of another normal vector.
        norms = jnp.linalg.norm(jr.normal(norm_key, (num_features, feature_dim)), axis=1)
        self.weight = value * norms[:, None] * directions
        self.bias = jr.uniform(bias_key, (num_features,), maxval=2 * jnp.pi)

    def __call__(self, x: Float[Array, " features"]) -> Float[Array, " random"]:
        """Return the random features of one input."""
        check_shape("x", x, (self.weight.shape[-1],))
        return jnp.cos(self.weight @ x + self.bias)
