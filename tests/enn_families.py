"""Kinds of ENNs in any size: `name -> constructor(in_dim, num_classes, width, key=)`, for properties of all of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import epinet_eqx as epi
from epinet_eqx import bayes, combinators, pitman_yor
from epinet_eqx.baselines import MIMO, SNGP, Heteroscedastic, with_posterior
from epinet_eqx.epinet import Epinet, MLPEpinet, mlp_prior
from epinet_eqx.indices import DirichletIndex, GaussianIndex, GaussianWithUnitIndex, ScaledGaussianIndex
from epinet_eqx.networks import MLP, FunctionNetwork, headless


def network(in_dim, num_classes, width, key):
    return MLP(in_dim, num_classes, (width,), key=key)


def many(count, in_dim, num_classes, width, key):
    return eqx.filter_vmap(lambda key: network(in_dim, num_classes, width, key))(jr.split(key, count))


def epinet(in_dim, num_classes, width, key):
    prior = mlp_prior(in_dim, 3, num_classes, key=jr.fold_in(key, 1))
    base = network(in_dim, num_classes, width, key)
    return epi.attach(base, out_size=num_classes, index_dim=3, hidden=(5,), priors=(prior,), key=jr.fold_in(key, 2))


def linear_epinet(index):
    def make(in_dim, num_classes, width, key):
        learnable = MLPEpinet(width, index.size, num_classes, hidden=(), key=jr.fold_in(key, 1))
        return Epinet(network(in_dim, num_classes, width, key), learnable, (), index)

    return make


def on_function(in_dim, num_classes, width, key):
    # A base without parameters, whose features are its input.
    base = FunctionNetwork(lambda x: (jnp.full(num_classes, jnp.sum(x)), x))
    return epi.attach(
        base, out_size=num_classes, index_dim=width, hidden=(), priors=(), example=jnp.zeros(in_dim), key=key
    )


def ensemble_with_priors(in_dim, num_classes, width, key):
    prior = bayes.Ensemble(many(3, in_dim, num_classes, width, jr.fold_in(key, 1)))
    ensemble = bayes.Ensemble(many(3, in_dim, num_classes, width, key))
    return combinators.WithPrior(ensemble, combinators.Prior(prior, 2.0))


def laplace(structure):
    def make(in_dim, num_classes, width, key):
        x = jr.normal(jr.fold_in(key, 1), (7, in_dim))
        base = network(in_dim, num_classes, width, key)
        return bayes.last_layer_laplace(base, x, prior_precision=2.0, structure=structure)

    return make


def swag(in_dim, num_classes, width, key):
    state = bayes.SWAGState.init(network(in_dim, num_classes, width, key), 2)
    for step in range(3):
        state = state.update(network(in_dim, num_classes, width, jr.fold_in(key, step)))
    return bayes.SWAG(state)


def on_trunk(make):
    def with_trunk(in_dim, num_classes, width, key):
        trunk = headless(network(in_dim, num_classes, width, key))
        return combinators.OnTrunk(trunk, make(width, num_classes, jr.fold_in(key, 1)))

    return with_trunk


def sngp_with_posterior(in_dim, num_classes, width, key):
    enn = FAMILIES["sngp"](in_dim, num_classes, width, key=key)
    return with_posterior(enn, jr.normal(jr.fold_in(key, 2), (5, in_dim)))


def pitman_yor_head(in_dim, num_classes, width, key):
    examples = jr.normal(jr.fold_in(key, 1), (9, in_dim))
    return pitman_yor.attach(network(in_dim, num_classes, width, key), examples, alpha=0.4, key=jr.fold_in(key, 2))


FAMILIES = {
    "epinet": epinet,
    "epinet, one unit of the index": linear_epinet(GaussianIndex(1)),
    "epinet, scaled index": linear_epinet(ScaledGaussianIndex(4)),
    "epinet, index with a one": linear_epinet(GaussianWithUnitIndex(3)),
    "epinet, Dirichlet index": linear_epinet(DirichletIndex(3)),
    "epinet on a function": on_function,
    "deterministic": lambda i, c, w, key: bayes.Deterministic(network(i, c, w, key)),
    "ensemble of one": lambda i, c, w, key: bayes.Ensemble(many(1, i, c, w, key)),
    "ensemble": lambda i, c, w, key: bayes.Ensemble(many(5, i, c, w, key)),
    "ensemble with priors": ensemble_with_priors,
    "dropout": lambda i, c, w, key: bayes.dropout_mlp(i, c, (w, w), rate=0.3, dropout_input=True, key=key),
    "bayes by backprop": lambda i, c, w, key: bayes.BayesByBackprop(network(i, c, w, key), sigma_init=0.1),
    "linear hypermodel": lambda i, c, w, key: bayes.LinearHypermodel(
        network(i, c, w, key), GaussianIndex(3), key=jr.fold_in(key, 1)
    ),
    "diagonal hypermodel": lambda i, c, w, key: bayes.DiagonalHypermodel(network(i, c, w, key), scale_init=0.3),
    "indexed mlp": lambda i, c, w, key: bayes.IndexedMLP(i, c, (w,), ScaledGaussianIndex(4), key=key),
    "posterior samples": lambda i, c, w, key: bayes.from_samples(
        network(i, c, w, key), many(4, i, c, w, jr.fold_in(key, 1))
    ),
    "laplace, dense": laplace("dense"),
    "laplace, kronecker": laplace("kronecker"),
    "swag": swag,
    "mimo": lambda i, c, w, key: MIMO(network(2 * i, 2 * c, w, key)),
    "heteroscedastic": on_trunk(lambda i, c, key: Heteroscedastic(i, c, rank=2, key=key)),
    "sngp": on_trunk(lambda i, c, key: SNGP(i, c, num_features=6, key=key)),
    "sngp with a posterior": sngp_with_posterior,
    "pitman-yor": pitman_yor_head,
    "tempered": lambda i, c, w, key: epi.Tempered(epinet(i, c, w, key), 0.7),
    "mirrored": lambda i, c, w, key: combinators.Mirrored(epinet(i, c, w, key), 0.5),
    "marginalized": lambda i, c, w, key: combinators.Marginalized(epinet(i, c, w, key), 3),
    "class probabilities": lambda i, c, w, key: combinators.ClassProbs(epinet(i, c, w, key)),
    "half precision": lambda i, c, w, key: combinators.InPrecision(epinet(i, c, w, key), jnp.dtype(jnp.bfloat16)),
}


def cast(enn, dtype):
    """Return an ENN whose parameters are of another type."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, enn)
