"""Uncertainty baselines that need no training of the trunk: heads on the stored features of a frozen network.

Each has its hyperparameter and its temperature chosen on images of other folds, by the joint loss among those whose
marginal loss is no worse than that of the network as it is.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import AbstractENN, Frozen, freeze, named_keys
from epinet_eqx.baselines import SNGP, Heteroscedastic
from epinet_eqx.bayes import Deterministic
from epinet_eqx.combinators import Marginalized
from epinet_eqx.data import LinearLayer
from epinet_eqx.indices import AbstractIndex, GaussianIndex
from epinet_eqx.likelihoods import Categorical
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import MLP, Linear
from epinet_eqx.training import fit, fit_ensemble

from ..configs.banked import Folds
from ..configs.imagenet import BankPart, Heads
from .banked import Chosen, Parts, Row, Split, bank_of, judged_rows
from .heads import on_stored
from .scoring import best_place, draws_of, mean_losses


class PairPosterior(AbstractENN):
    r"""Output weights with a Gaussian distribution, as far as the logits of a pair of inputs depend on them.

    With covariance $\sum_i v_{ic} u_i u_i^\top$ of the weights of class $c$, the deviations of the two logits have the
    covariance $\sum_i v_{ic} a_i a_i^\top$, with $a_i$ the two inputs along $u_i$. Two normal numbers per class have
    it, too: the joint prediction of a pair is that of the weights, without drawing any. An input holds the logits, the
    features, those of its partner, and whether it is the second of the two.
    """

    project: Frozen[Any]
    variances: Frozen[Float[Array, "inputs classes"]]
    class_basis: Frozen[Float[Array, "classes classes"]] | None
    index: GaussianIndex

    def __init__(
        self,
        project: Callable[[Float[Array, " features"]], Float[Array, " inputs"]],
        variances: Float[Array, "inputs classes"],
        class_basis: Float[Array, "classes classes"] | None = None,
    ):
        """Initialize from parts.

        Args:
            project: maps features to the inputs of the output weights, along the eigenvectors of their covariance.
            variances: its eigenvalues, for each class.
            class_basis: what the classes are combinations of; by default they are independent.
        """
        self.project = Frozen(project)
        self.variances = Frozen(variances)
        self.class_basis = None if class_basis is None else Frozen(class_basis)
        self.index = GaussianIndex(2 * variances.shape[1])

    def _covariance(self, one: Float[Array, " inputs"], other: Float[Array, " inputs"]) -> Float[Array, " classes"]:
        """Return the covariance of the deviations at two inputs."""
        return (one * other) @ self.variances.value

    def embed(self, x: Any) -> tuple[Float[Array, " classes"], Float[Array, "2 classes"]]:
        """Return the logits, and what multiplies the two normal numbers: a row of a Cholesky factor."""
        own, partner = self.project.value(x["features"]), self.project.value(x["partner"])
        variance, cross = self._covariance(own, own), self._covariance(own, partner)
        along = cross / jnp.sqrt(self._covariance(partner, partner))
        rest = jnp.sqrt(jnp.maximum(variance - along**2, 0.0))
        first = jnp.stack([jnp.sqrt(variance), jnp.zeros_like(variance)])
        return x["logits"], jnp.where(x["second"], jnp.stack([along, rest]), first)

    def heads(
        self, embedding: tuple[Array, Array], zs: Float[Array, "samples index"]
    ) -> Float[Array, "samples classes"]:
        """Return the logits at many indices."""
        logits, root = embedding
        deviations = jnp.einsum("jc,mjc->mc", root, zs.reshape(len(zs), 2, -1))
        if self.class_basis is not None:
            deviations = deviations @ self.class_basis.value.T
        return logits[None, :] + deviations


def paired(data: Batch, split: Split) -> Batch:
    """Return images with the features of their partners in the pairs of each fold."""
    features = np.asarray(data.x["features"])
    partner, second = np.zeros_like(features), np.zeros(len(features), bool)
    for places in split.places:
        first, other = places[::2], places[1::2]
        partner[first], partner[other] = features[other], features[first]
        second[other] = True
    return Batch({**data.x, "partner": partner, "second": second}, data.y, data.i)


Made = Iterable[AbstractENN]


def _sngp(heads: Heads, linear: LinearLayer, parts: Parts, key: PRNGKeyArray) -> Made:
    """Yield posteriors of output weights on random features, with the network's logits as their mean."""
    features = jnp.asarray(parts.training.x["features"])
    sngp = SNGP(features.shape[1], len(linear.bias), num_features=heads.random_features, key=key)
    sngp = eqx.filter_jit(lambda enn, x: enn.with_gram(enn.gram(x)))(sngp, features)
    assert sngp.root is not None
    random, root = sngp.random_features.value, sngp.root.value
    ones = jnp.ones((heads.random_features, len(linear.bias)))
    for scale in heads.sngp_scales:
        yield PairPosterior(_Projected(random, root), scale**2 * ones)


class _Projected(eqx.Module):
    """Random features times the root of a covariance."""

    random: Callable[[Array], Array]
    root: Array

    def __call__(self, x: Float[Array, " features"]) -> Float[Array, " random"]:
        """Project one input."""
        return self.random(x) @ self.root


class _Along(eqx.Module):
    """The features and a one, for the bias, along a basis."""

    basis: Array

    def __call__(self, x: Float[Array, " features"]) -> Float[Array, " inputs"]:
        """Project one input."""
        return jnp.append(x, jnp.ones((), x.dtype)) @ self.basis


def _laplace(heads: Heads, linear: LinearLayer, parts: Parts, key: PRNGKeyArray) -> Made:
    """Yield last-layer Laplace approximations with Kronecker factors, one for each prior precision."""
    logits, features = (jnp.asarray(parts.training.x[name]) for name in ("logits", "features"))
    inputs = jnp.concatenate([features, jnp.ones((len(features), 1))], axis=1)
    values, basis = jnp.linalg.eigh(inputs.T @ inputs)
    fisher = Categorical().fisher(logits, jnp.full(len(logits), 1 / len(logits)))
    class_values, class_basis = jnp.linalg.eigh(fisher)
    information = jnp.maximum(values, 0.0)[:, None] * jnp.maximum(class_values, 0.0)[None, :]
    for precision in heads.prior_precisions:
        yield PairPosterior(_Along(basis), 1 / (information + precision), class_basis)


def _linear(layer: LinearLayer) -> Linear:
    """Return the last layer of the network."""
    weight, bias = jnp.asarray(layer.weight, jnp.float32), jnp.asarray(layer.bias, jnp.float32)
    made = Linear(weight.shape[1], weight.shape[0], key=jr.key(0))
    return eqx.tree_at(lambda own: (own.weight, own.bias), made, (weight, bias))


class FeatureDropout(AbstractENN):
    """The last layer of a network on features with dropout: an index is a mask, which all inputs share."""

    linear: Frozen[Linear]
    rate: Frozen[Float[Array, ""]]
    index: GaussianIndex

    def __init__(self, linear: Linear, rate: float):
        """Initialize from the layer and the probability that a feature is dropped."""
        self.linear = Frozen(linear)
        self.rate = Frozen(jnp.asarray(rate))
        self.index = GaussianIndex(linear.weight.shape[1])

    def embed(self, x: Any) -> Float[Array, " features"]:
        """Return the features."""
        return x["features"]

    def heads(
        self, embedding: Float[Array, " features"], zs: Float[Array, "samples features"]
    ) -> Float[Array, "samples classes"]:
        """Return the logits with many masks."""
        linear, rate = self.linear.value, self.rate.value
        masks = jnp.where(jax.scipy.special.ndtr(zs) >= rate, 1 / (1 - rate), 0.0)
        return (embedding[None, :] * masks) @ linear.weight.T + linear.bias[None, :]


class _OnFeatures(AbstractENN):
    """An ENN that reads the features only."""

    enn: AbstractENN
    index: AbstractIndex

    def __init__(self, enn: AbstractENN):
        """Initialize with the ENN."""
        self.enn = enn
        self.index = enn.index

    def embed(self, x: Any) -> Any:
        """Return the embedding of the features."""
        return self.enn.embed(x["features"])

    def heads(self, embedding: Any, zs: Array) -> Float[Array, "samples classes"]:
        """Return the logits at many indices."""
        return self.enn.heads(embedding, zs)


def _dropout(heads: Heads, linear: LinearLayer, parts: Parts, key: PRNGKeyArray) -> Made:
    """Yield the last layer on features with dropout."""
    for rate in heads.dropout_rates:
        yield FeatureDropout(_linear(linear), rate)


def _features(data: Batch) -> Batch:
    """Return images by their features only."""
    return Batch(data.x["features"], data.y, data.i)


def _het(heads: Heads, linear: LinearLayer, parts: Parts, key: PRNGKeyArray) -> Made:
    """Yield a heteroscedastic head whose mean is the network's last layer; its covariance is trained."""
    build_key, fit_key = named_keys(key, "build", "fit")
    made = Heteroscedastic(
        linear.weight.shape[1], linear.weight.shape[0], rank=heads.het_rank, temperature=1.0, key=build_key
    )
    made = eqx.tree_at(lambda enn: enn.mean, made, _linear(linear))
    trained = fit(
        Marginalized(freeze(made, lambda enn: enn.mean), heads.het_samples),
        _features(parts.training),
        CrossEntropy(),
        num_steps=heads.num_steps,
        optimizer=_OPTIMIZER,
        num_index_samples=1,
        progress=False,
        key=fit_key,
    ).enn
    assert isinstance(trained, Marginalized)
    yield _OnFeatures(trained.enn)


def _ensemble(heads: Heads, linear: LinearLayer, parts: Parts, key: PRNGKeyArray) -> Made:
    """Yield ensembles of last layers with random linear priors, fine-tuned from the network's own."""
    num_classes, num_features = linear.weight.shape
    build_key, fit_key = named_keys(key, "build", "fit")
    own = eqx.tree_at(lambda mlp: mlp.layers[0], MLP(num_features, num_classes, (), key=build_key), _linear(linear))
    for scale in heads.ensemble_scales:
        yield _OnFeatures(
            fit_ensemble(
                lambda _: own,
                _features(parts.training),
                CrossEntropy(),
                num_particles=heads.num_particles,
                num_steps=heads.num_steps,
                prior=lambda key: MLP(num_features, num_classes, (), key=key),
                prior_scale=scale,
                optimizer=_OPTIMIZER,
                progress=False,
                key=fit_key,
            ).enn
        )


def _hidden(heads: Heads, num_features: int, num_classes: int) -> int:
    """Return the hidden units with which a deterministic head has the size of the learnable epinet."""
    recipe = heads.capacity
    (hidden,) = recipe.hidden
    size = (num_features + recipe.index_dim + 1) * hidden + (hidden + 1) * recipe.index_dim * num_classes
    return size // (num_features + num_classes + 1)


def _deterministic(heads: Heads, linear: LinearLayer, parts: Parts, key: PRNGKeyArray) -> Made:
    """Yield a head without an index, of the epinet's size and training."""
    recipe = heads.capacity
    build_key, fit_key = named_keys(key, "build", "fit")
    num_classes, num_features = linear.weight.shape
    mlp = MLP(num_features, num_classes, (_hidden(heads, num_features, num_classes),), key=build_key)
    schedule = optax.cosine_decay_schedule(recipe.learning_rate, recipe.num_steps)
    yield fit(
        Deterministic(on_stored(mlp)),
        parts.training,
        CrossEntropy(l2=recipe.l2, label_smoothing=recipe.label_smoothing),
        num_steps=recipe.num_steps,
        batch_size=min(recipe.batch_size, len(parts.training.y)),
        optimizer=optax.sgd(schedule, momentum=0.9, nesterov=True),
        num_index_samples=1,
        progress=False,
        key=fit_key,
    ).enn


_OPTIMIZER = optax.adam(1e-4)


class Head(NamedTuple):
    """A baseline: what makes its candidates, and the parameters that it adds to the network.

    Attributes:
        make: yields the candidates, from settings, the network's last layer, images to train on and a key.
        parameters: returns their number, what is fixed or stored for a posterior included, from settings and the
            numbers of features and classes.
    """

    make: Callable[[Heads, LinearLayer, Parts, PRNGKeyArray], Made]
    parameters: Callable[[Heads, int, int], int]


HEADS: dict[str, Head] = {
    "dropout": Head(_dropout, lambda heads, features, classes: 0),
    "sngp": Head(
        _sngp, lambda heads, features, classes: (features + 1 + heads.random_features) * heads.random_features
    ),
    "het": Head(_het, lambda heads, features, classes: (heads.het_rank + 1) * (features + 1) * classes),
    "laplace": Head(
        _laplace, lambda heads, features, classes: (features + 1) ** 2 + classes**2 + (features + 1) * classes
    ),
    "heads": Head(_ensemble, lambda heads, features, classes: (2 * heads.num_particles - 1) * (features + 1) * classes),
    "deterministic": Head(
        _deterministic,
        lambda heads, features, classes: (features + classes + 1) * _hidden(heads, features, classes) + classes,
    ),
}
"""The baselines by name; a figure that has `head-NAME` among its parts computes one."""


def choose(
    made: Made, tuning: Batch, folds: Folds, num_samples: int, *, excess: float = 0.0, key: PRNGKeyArray
) -> Chosen:
    """Return the ENN and the temperature with the lowest joint loss that keep the network's marginal loss.

    Where none keeps it, those that lose least.

    Args:
        made: the candidates.
        tuning: images to choose on.
        folds: the temperatures.
        num_samples: number of indices.
        excess: by which share the marginal loss may be above the network's.
        key: random key.
    """
    log_p = np.asarray(jax.nn.log_softmax(jnp.asarray(tuning.x["logits"])))
    own = -float(np.take_along_axis(log_p, np.asarray(tuning.y)[:, None], axis=1).mean())
    tried = []
    for enn in made:
        draws = draws_of(enn, num_samples, key=key, chunk_size=folds.chunk_size)
        losses = mean_losses(enn, [tuning], draws, folds.temperatures)
        tried += [(enn, *own) for own in zip(folds.temperatures, *losses, strict=True)]
    _, _, marginal, joint = zip(*tried, strict=True)
    enn, temperature, *_ = tried[best_place(marginal, joint, (1 + excess) * own)]
    return Chosen(enn, temperature)


def head_rows(config: BankPart, split: Split, data: Batch, parameters: int, *, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of a head on a network.

    Args:
        config: the network, and the name of the head.
        split: the folds.
        data: the stored outputs of all images.
        parameters: those of the network.
        key: random key.
    """
    (network,) = config.networks
    name, heads = config.part.partition("-")[2], config.bank.heads
    linear = bank_of("imagenet", network).linear
    assert linear is not None

    def make(fold: int, parts: Parts) -> Chosen:
        make_key, choose_key = named_keys(jr.fold_in(key, fold), "make", "choose")
        made = HEADS[name].make(heads, linear, parts, make_key)
        return choose(made, parts.tuning, split.folds, heads.tuning_samples, key=choose_key)

    total = parameters + HEADS[name].parameters(heads, linear.weight.shape[1], linear.weight.shape[0])
    about = {"agent": name, "network": network, "members": 1, "parameters": total}
    return judged_rows(split, paired(data, split), make, counts=heads.counts, key=key, **about)
