"""Networks with running statistics, and their stateless form for an ENN."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from .._tree import Frozen
from ._abstract import AbstractNetwork


class AbstractStatefulNetwork(eqx.Module):
    """A network of images whose batch normalizations keep running values in an `eqx.nn.State`.

    It maps one example; a batch is `jax.vmap(network, in_axes=(0, None), out_axes=(0, None), axis_name="batch")`. After
    `eqx.nn.inference_mode(network)` it uses the running values, leaves the state as it is and drops nothing out.
    """

    @property
    @abc.abstractmethod
    def feature_dim(self) -> int:
        """The size of the pooled features."""

    @abc.abstractmethod
    def with_features(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " classes"], Float[Array, " features"], eqx.nn.State]:
        """Return the output for one image, the pooled features that it is a linear function of, and the new state."""

    @abc.abstractmethod
    def stages(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> dict[str, Float[Array, "..."]]:
        """Return what every stage makes of one image, by name; images have their channels first."""

    @abc.abstractmethod
    def with_masks(self) -> "AbstractStatefulNetwork":
        """Return the network with its dropout on, also where everything else is in inference mode."""

    def __call__(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " classes"], eqx.nn.State]:
        """Return the output for one image and the new state; the key is that of the dropout masks."""
        output, _, state = self.with_features(x, state, key=key)
        return output, state


class FixedStatistics(AbstractNetwork):
    """A network in inference mode together with its running values, which are frozen: a base for `attach`."""

    network: AbstractStatefulNetwork
    state: Frozen[eqx.nn.State]

    @property
    def feature_dim(self) -> int:
        """The size of the pooled features."""
        return self.network.feature_dim

    def with_features(
        self, x: Float[Array, "channels height width"]
    ) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output for one image and the pooled features."""
        output, features, _ = self.network.with_features(x, self.state.value)
        return output, features

    def stages(self, x: Float[Array, "channels height width"]) -> dict[str, Float[Array, "..."]]:
        """Return what every stage makes of one image, by name; images have their channels first."""
        return self.network.stages(x, self.state.value)

    def masked(
        self, x: Float[Array, "channels height width"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " classes"]:
        """Return the output with the dropout masks of `key`: `MCDropout(network.masked)` is an ENN."""
        return self.network.with_masks()(x, self.state.value, key=key)[0]


def with_statistics(network: AbstractStatefulNetwork, state: eqx.nn.State) -> FixedStatistics:
    """Return the stateless network that uses the running values of `state`.

    Training it changes its weights, but neither the running values nor the rule that they are what normalizes.
    """
    return FixedStatistics(eqx.nn.inference_mode(network), Frozen(state))
