"""What an image protocol trains for one seed: each network once, when it is first asked for."""

import dataclasses
import functools as ft
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import AbstractENN, Frozen, named_keys
from epinet_eqx.bayes import Deterministic, Ensemble
from epinet_eqx.epinet import Epinet, NetworkEnsemble, PriorNetwork, attach
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.networks import MLP, AbstractNetwork, ConvNet
from epinet_eqx.training import EpochBatches, fit, fit_ensemble

from ..configs.images import EpinetRecipe, Protocol, Training
from .image_data import Splits, load

# The conv prior of small images: as CIFAR's, with kernels that fit.
_CONV: dict[str, Any] = {"channels": (4, 8, 4), "kernels": (3, 3, 3), "strides": (2, 2, 2)}


class OnImage(AbstractNetwork):
    """A conv net on an image that comes as a vector."""

    network: ConvNet
    image_shape: tuple[int, int, int] = eqx.field(static=True)

    def with_features(self, x: Float[Array, " pixels"]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the logits and features of the conv net."""
        return self.network.with_features(x.reshape(self.image_shape))


class WithHead(AbstractNetwork):
    """A frozen network plus an MLP on its features: the control with an epinet's capacity and without an index."""

    base: Frozen[AbstractNetwork]
    head: MLP

    def with_features(self, x: Float[Array, " pixels"]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the sum of both outputs, and the features of the base."""
        output, features = self.base.value.with_features(x)
        return output + self.head(features), features


def settings_of(training: Training, num_train: int) -> dict[str, Any]:
    """Return the arguments of `fit` that a training stands for."""
    return {
        "num_steps": training.epochs * num_train // training.batch_size,
        "batch_size": training.batch_size,
        "sampling": EpochBatches,
        "optimizer": _adam(training.learning_rate),
        "progress": False,
    }


def loss_of(training: Training) -> CrossEntropy:
    """Return the loss that a training stands for."""
    return CrossEntropy(l2=training.l2, label_smoothing=training.label_smoothing)


@ft.cache
def _adam(learning_rate: float) -> optax.GradientTransformation:
    """Return the optimizer, one object per learning rate: a compiled loop is found again by its identity."""
    return optax.adam(learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lab:
    """The networks of one seed. Everything is a function of the key and the seed, whatever is asked for first."""

    protocol: Protocol
    seed: int
    key: PRNGKeyArray

    @ft.cached_property
    def scored(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of results that several parts need, by family."""
        return {}

    @ft.cached_property
    def data(self) -> Splits:
        """The data."""
        return load(self.protocol, self.seed, key=self.key_of("data", shared=True))

    def key_of(self, name: str, *, shared: bool = False) -> PRNGKeyArray:
        """Return a stream of keys of this seed, or of all seeds."""
        (found,) = named_keys(self.key if shared else jr.fold_in(self.key, self.seed), name)
        return found

    @property
    def num_pixels(self) -> int:
        """The size of an input."""
        return math.prod(self.data.image_shape)

    def make_network(self, size: int, key: PRNGKeyArray) -> MLP:
        """Return a base network of a size: two hidden layers, of which the last one is the features."""
        return MLP(self.num_pixels, self.data.num_classes, (size, size), feature_layers=(-1,), key=key)

    def fit(self, enn: AbstractENN, training: Training, *, key: PRNGKeyArray, **options: Any) -> Any:
        """Return an ENN trained on the training data of this seed."""
        found = fit(
            enn,
            self.data.train,
            loss_of(training),
            **settings_of(training, self.protocol.num_train),
            **options,
            key=key,
        )
        return found.enn

    @ft.cached_property
    def particles(self) -> Ensemble:
        """The largest ensemble of the smallest network; the smaller ensembles are its first particles."""
        protocol = self.protocol
        ensemble, _ = fit_ensemble(
            lambda key: self.make_network(protocol.sizes[0], key),
            self.data.train,
            loss_of(protocol.training),
            num_particles=max(protocol.ensemble_sizes),
            **settings_of(protocol.training, protocol.num_train),
            key=self.key_of("particles"),
        )
        return ensemble

    def ensemble(self, size: int) -> Ensemble:
        """Return the ensemble of the first particles."""
        particles = jax.tree.map(lambda leaf: leaf[:size] if eqx.is_array(leaf) else leaf, self.particles.particles)
        return Ensemble(particles)

    @ft.cached_property
    def _bases(self) -> dict[int, AbstractNetwork]:
        return {}

    def base(self, size: int) -> AbstractNetwork:
        """Return the base network of a size; the smallest is the first particle."""
        if size not in self._bases:
            if size == self.protocol.sizes[0]:
                first = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, self.particles.particles)
                self._bases[size] = first
            else:
                init_key, fit_key = named_keys(self.key_of(f"base {size}"), "init", "fit")
                network = Deterministic(self.make_network(size, init_key))
                self._bases[size] = self.fit(network, self.protocol.training, key=fit_key).network
        return self._bases[size]

    def epinet(self, size: int, recipe: EpinetRecipe) -> Epinet:
        """Return an epinet on the frozen base of a size, trained by a recipe; recipes of equal shapes begin alike."""
        init_key, prior_key, fit_key = named_keys(self.key_of(f"epinet {size}"), "init", "prior", "fit")
        data = self.data

        def member(key: PRNGKeyArray) -> OnImage:
            return OnImage(ConvNet(data.image_shape, data.num_classes, **_CONV, key=key), data.image_shape)

        conv = NetworkEnsemble(member, recipe.index_dim, key=prior_key)
        enn = attach(
            self.base(size),
            num_classes=data.num_classes,
            index_dim=recipe.index_dim,
            hidden=recipe.hidden,
            prior_scale=jnp.asarray(recipe.matched_scale),
            priors=(PriorNetwork(conv, jnp.asarray(recipe.conv_scale)),),
            key=init_key,
        )
        return self.fit(enn, recipe.training, num_index_samples=recipe.num_index_samples, key=fit_key)

    def head(self, size: int) -> AbstractENN:
        """Return the base of a size with a trained MLP on its features, as large as the learnable epinet or larger."""
        init_key, fit_key = named_keys(self.key_of(f"head {size}"), "init", "fit")
        recipe, classes = self.protocol.epinet, self.data.num_classes
        base = self.base(size)
        width = recipe.hidden[0] * recipe.index_dim
        head = MLP(base.feature_dim, classes, (width,), feature_layers=(), key=init_key)  # pyright: ignore
        return self.fit(Deterministic(WithHead(Frozen(base), head)), recipe.training, key=fit_key)

    @ft.cached_property
    def _epinets(self) -> dict[int, Epinet]:
        return {}

    def default_epinet(self, size: int) -> Epinet:
        """Return the epinet of the protocol on the base of a size."""
        if size not in self._epinets:
            self._epinets[size] = self.epinet(size, self.protocol.epinet)
        return self._epinets[size]

    @ft.cached_property
    def _baselines(self) -> dict[str, AbstractENN]:
        return {}

    def baseline(self, name: str, train: Callable[["Lab", str], AbstractENN]) -> AbstractENN:
        """Return a baseline by its name, trained by `train` when it is first asked for."""
        if name not in self._baselines:
            self._baselines[name] = train(self, name)
        return self._baselines[name]

    def deterministic(self, size: int) -> AbstractENN:
        """Return the base network alone."""
        return Deterministic(self.base(size))
