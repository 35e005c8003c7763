"""A network with a prior function: one particle of "ensemble+" (Section 5)."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._checks import check_scalar, check_shape
from .._tree import Frozen
from ..networks import AbstractNetwork


class NetworkWithPrior(AbstractNetwork):
    r"""A network plus a frozen random network times a scale: $g_\theta(x) + s\,p(x)$.

    An `Ensemble` of these is the "ensemble+" of the Neural Testbed. The prior's weights are arrays of the model: no
    step and no weight decay moves them, so particles that agree on the data still differ away from it.
    """

    network: AbstractNetwork
    prior: Frozen[Callable[[PyTree[Array]], Float[Array, " classes"]]]
    scale: Frozen[Float[Array, ""]]

    def __init__(
        self,
        network: AbstractNetwork,
        prior: Callable[[PyTree[Array]], Float[Array, " classes"]],
        scale: float | Float[Array, ""] = 1.0,
    ):
        """Initialize from parts.

        Args:
            network: the network that is trained.
            prior: the fixed network, with as many outputs.
            scale: the scale of the prior, an array so that sweeping it compiles once.
        """
        self.network = network
        self.prior = Frozen(prior)
        self.scale = Frozen(check_scalar("scale", jnp.asarray(scale, dtype=float), minimum=0.0))

    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the sum of both outputs, and the features of the trained network."""
        output, features = self.network.with_features(x)
        prior = self.prior(x)
        check_shape("prior", prior, output.shape)
        return output + self.scale.value * prior, features
