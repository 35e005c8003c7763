"""What an image protocol trains for one seed: each network once, when it is first asked for."""

import dataclasses
import functools as ft
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import Frozen, named_keys
from epinet_eqx.bayes import Deterministic
from epinet_eqx.combinators import Prior
from epinet_eqx.epinet import Epinet, NetworkEnsemble, Reads, attach
from epinet_eqx.networks import MLP, AbstractNetwork, ConvNet

from ..configs.images import EpinetRecipe, Protocol
from .heads import WithHead
from .image_agents import Agent, Backend, Untrained
from .image_baselines import BASELINES


class OnImage(AbstractNetwork):
    """A conv net on an image that comes as a vector, or as it is."""

    network: ConvNet
    image_shape: tuple[int, int, int] = eqx.field(static=True)

    @property
    def feature_dim(self) -> int:
        """The size of the features of the conv net."""
        return self.network.feature_dim

    def with_features(self, x: Float[Array, "..."]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the logits and features of the conv net."""
        return self.network.with_features(x.reshape(self.image_shape))


class Cooled(AbstractNetwork):
    """A network whose outputs are divided by a temperature."""

    network: AbstractNetwork
    temperature: Frozen[Float[Array, ""]]

    @property
    def feature_dim(self) -> int | None:
        """The size of the features of the network."""
        return self.network.feature_dim

    def with_features(self, x: Float[Array, "..."]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the divided output, and the features as they are."""
        output, features = self.network.with_features(x)
        return output / self.temperature.value, features


def epinet_on(
    base: AbstractNetwork,
    recipe: EpinetRecipe,
    image_shape: tuple[int, int, int],
    num_classes: int,
    *,
    prior_key: PRNGKeyArray,
    key: PRNGKeyArray,
) -> Epinet:
    """Return an epinet with both of the paper's priors: of its own architecture, and of small conv nets on the image.

    Args:
        base: the network that it is put on.
        recipe: the epinet.
        image_shape: shape of an image.
        num_classes: number of classes.
        prior_key: random key of the conv nets.
        key: random key of all else.
    """

    def member(key: PRNGKeyArray) -> OnImage:
        return OnImage(ConvNet(image_shape, num_classes, **dataclasses.asdict(recipe.conv), key=key), image_shape)

    conv = Reads(NetworkEnsemble(member, recipe.index_dim, key=prior_key), "input")
    return attach(
        base,
        out_size=num_classes,
        index_dim=recipe.index_dim,
        hidden=recipe.hidden,
        prior_scale=jnp.asarray(recipe.prior_scale),
        priors=(Prior(conv, jnp.asarray(recipe.conv_scale)),),
        key=key,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lab:
    """The agents of one seed: what is trained, and in which relation to each other; how is up to the backend."""

    backend: Backend

    @property
    def protocol(self) -> Protocol:
        """The protocol."""
        return self.backend.seed.protocol

    @ft.cached_property
    def scored(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of results that several parts need, by family."""
        return {}

    def key_of(self, name: str, *, shared: bool = False) -> PRNGKeyArray:
        """Return a stream of keys of this seed, or of all seeds."""
        return self.backend.seed.key_of(name, shared=shared)

    @ft.cached_property
    def _bases(self) -> dict[int, AbstractNetwork]:
        return {}

    def base(self, size: int) -> AbstractNetwork:
        """Return the base network of a size; the smallest is the first particle."""
        if size not in self._bases:
            self._bases[size] = self.backend.base(size)
        return self._bases[size]

    def deterministic(self, size: int) -> Agent:
        """Return the base network alone."""
        return self.backend.alone(size, self.base(size))

    def ensemble(self, size: int) -> Agent:
        """Return the ensemble of the first particles."""
        return self.backend.ensemble(size)

    def _agent(self, name: str, size: int, enn: Any) -> Agent:
        """Return an agent that sees images."""
        return Agent(name=name, size=size, enn=enn, batches=self.backend.batches, counted=enn)

    def _build(self, size: int, recipe: EpinetRecipe, init_key: PRNGKeyArray, prior_key: PRNGKeyArray) -> Epinet:
        """Return an epinet on the frozen base of a size."""
        base = self.base(size)
        if recipe.base_temperature != 1.0:
            base = Cooled(base, Frozen(jnp.asarray(recipe.base_temperature)))
        shape, num_classes = self.backend.image_shape, self.backend.num_classes
        return epinet_on(base, recipe, shape, num_classes, prior_key=prior_key, key=init_key)

    def epinet(self, size: int, recipe: EpinetRecipe, *, name: str = "epinet") -> Agent:
        """Return an epinet on the frozen base of a size, trained by a recipe; recipes of equal shapes begin alike."""
        init_key, prior_key, fit_key = named_keys(self.key_of(f"epinet {size}"), "init", "prior", "fit")
        wanted = Untrained(
            name=f"epinet {size}",
            build=ft.partial(self._build, size, recipe, init_key, prior_key),
            training=recipe.training,
            num_index_samples=recipe.num_index_samples,
            recipe=recipe,
            key=fit_key,
        )
        return self._agent(name, size, self.backend.fit(wanted))

    def head(self, size: int) -> Agent:
        """Return the base of a size with a trained MLP on its features, as large as the learnable epinet or larger."""
        init_key, fit_key = named_keys(self.key_of(f"head {size}"), "init", "fit")
        recipe, base = self.protocol.epinet, self.base(size)
        width = recipe.hidden[0] * recipe.index_dim

        def build() -> Deterministic:
            assert base.feature_dim is not None
            head = MLP(base.feature_dim, self.backend.num_classes, (width,), feature_layers=(), key=init_key)
            return Deterministic(WithHead(Frozen(base), head))

        wanted = Untrained(name=f"head {size}", build=build, training=recipe.training, recipe=recipe, key=fit_key)
        return self._agent("deterministic head", size, self.backend.fit(wanted))

    @ft.cached_property
    def _epinets(self) -> dict[int, Agent]:
        return {}

    def default_epinet(self, size: int) -> Agent:
        """Return the epinet of the protocol on the base of a size."""
        if size not in self._epinets:
            self._epinets[size] = self.epinet(size, self.protocol.epinet)
        return self._epinets[size]

    @ft.cached_property
    def _baselines(self) -> dict[str, Agent]:
        return {}

    def baseline(self, name: str) -> Agent:
        """Return a baseline by its name, on a network of the smallest size."""
        if name not in self._baselines:
            self._baselines[name] = self._agent(name, self.protocol.sizes[0], BASELINES[name](self.backend))
        return self._baselines[name]
