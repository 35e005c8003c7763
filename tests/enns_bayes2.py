"""Small ENNs of `bayes`, part 2: input of size 3, 4 classes. Each goes through the contract of every ENN."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr


def _network(key):
    from epinet_eqx.networks import MLP

    return MLP(3, 4, (5,), key=key)


def _linear_hypermodel(key):
    from epinet_eqx.bayes import LinearHypermodel
    from epinet_eqx.indices import ScaledGaussianIndex

    return LinearHypermodel(_network(jr.fold_in(key, 0)), ScaledGaussianIndex(6), key=jr.fold_in(key, 1))


def _indexed_mlp(key):
    from epinet_eqx.bayes import IndexedMLP
    from epinet_eqx.indices import ScaledGaussianIndex

    return IndexedMLP(3, 4, (5, 5), ScaledGaussianIndex(6), key=key)


def _hypermodel_with_prior(key):

    from epinet_eqx.combinators import Prior, WithPrior

    return WithPrior(_linear_hypermodel(jr.fold_in(key, 0)), Prior(_indexed_mlp(jr.fold_in(key, 1)), 2.0))


def _diagonal_hypermodel(key):
    from epinet_eqx.bayes import DiagonalHypermodel

    return DiagonalHypermodel(_network(key), scale_init=0.3)


def _ensemble_with_additive_prior(key):
    from epinet_eqx.bayes import Ensemble
    from epinet_eqx.combinators import Prior, WithPrior

    particles = eqx.filter_vmap(_network)(jr.split(jr.fold_in(key, 0), 3))
    priors = eqx.filter_vmap(_network)(jr.split(jr.fold_in(key, 1), 3))
    return WithPrior(Ensemble(particles), Prior(Ensemble(priors), 3.0))


def _posterior_samples(key):
    from epinet_eqx.bayes import from_samples

    return from_samples(_network(jr.fold_in(key, 0)), eqx.filter_vmap(_network)(jr.split(jr.fold_in(key, 1), 5)))


def _laplace(structure):
    def make(key):
        from epinet_eqx.bayes import last_layer_laplace

        x = jr.normal(jr.fold_in(key, 0), (7, 3))
        return last_layer_laplace(_network(jr.fold_in(key, 1)), x, prior_precision=2.0, structure=structure)

    return make


def _regression_laplace(key):
    from epinet_eqx.bayes import last_layer_laplace
    from epinet_eqx.likelihoods import Gaussian

    x, y = jr.normal(jr.fold_in(key, 0), (7, 3)), jr.normal(jr.fold_in(key, 1), (7, 4))
    return last_layer_laplace(_network(jr.fold_in(key, 2)), x, y, prior_precision=2.0, likelihood=Gaussian(1.0))


def _swag(key):
    from epinet_eqx.bayes import SWAG, SWAGState

    state = SWAGState.init(_network(key), 3)
    for step in range(5):
        state = state.update(_network(jr.fold_in(key, step)))
    return SWAG(state)


def _transport(key):
    from epinet_eqx.bayes import Transport, split_parameters
    from epinet_eqx.indices import GaussianIndex

    network = _network(key)
    mean, skeleton = split_parameters(network)
    nu = (mean, jnp.full_like(mean, 0.1))
    return Transport(network, lambda nu, z: skeleton.build(nu[0] + nu[1] * z), GaussianIndex(mean.size), nu=nu)


CASES = {
    "linear_hypermodel": _linear_hypermodel,
    "indexed_mlp": _indexed_mlp,
    "hypermodel_with_prior": _hypermodel_with_prior,
    "diagonal_hypermodel": _diagonal_hypermodel,
    "ensemble_with_additive_prior": _ensemble_with_additive_prior,
    "posterior_samples": _posterior_samples,
    "laplace_dense": _laplace("dense"),
    "laplace_kronecker": _laplace("kronecker"),
    "laplace_regression": _regression_laplace,
    "swag": _swag,
    "transport": _transport,
}
