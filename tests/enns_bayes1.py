"""Small ENNs of `bayes` for the contract table: three inputs, four classes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr


def deterministic(key):
    from epinet_eqx.bayes import Deterministic
    from epinet_eqx.networks import MLP

    return Deterministic(MLP(3, 4, (8,), key=key))


def ensemble(key):
    from epinet_eqx.bayes import Ensemble
    from epinet_eqx.networks import MLP

    return Ensemble(eqx.filter_vmap(lambda k: MLP(3, 4, (8,), key=k))(jr.split(key, 5)))


def ensemble_with_trunk(key):
    from epinet_eqx.bayes import Ensemble
    from epinet_eqx.networks import MLP, Linear

    trunk_key, key = jr.split(key)
    particles = eqx.filter_vmap(lambda k: MLP(6, 4, (8,), key=k))(jr.split(key, 5))
    return Ensemble(particles, trunk=Linear(3, 6, key=trunk_key))


def ensemble_plus(key):
    from epinet_eqx.bayes import Deterministic, Ensemble
    from epinet_eqx.combinators import Prior, WithPrior
    from epinet_eqx.networks import MLP

    def particle(particle_key):
        network_key, prior_key = jr.split(particle_key)
        network, prior = MLP(3, 4, (8,), key=network_key), MLP(3, 4, (5,), key=prior_key)
        return WithPrior(Deterministic(network), Prior(Deterministic(prior), 0.7))

    return Ensemble(eqx.filter_vmap(particle)(jr.split(key, 5)))


def dropout(key):
    from epinet_eqx.bayes import dropout_mlp

    return dropout_mlp(3, 4, (8, 8), rate=0.3, key=key)


def dropout_with_input(key):
    from epinet_eqx.bayes import dropout_mlp

    return dropout_mlp(3, 4, (8,), rate=0.3, dropout_input=True, key=key)


def channel_dropout(key):
    from epinet_eqx.bayes import Dropout, MCDropout
    from epinet_eqx.networks import Conv, Linear

    conv_key, linear_key = jr.split(key)
    layers = [
        lambda x: x.reshape(1, 1, 3),
        Conv(1, 6, 3, 1, key=conv_key),
        Dropout(0.4, channelwise=True),
        jax.nn.relu,
        jnp.ravel,
        Linear(18, 4, key=linear_key),
    ]
    return MCDropout.of(layers)


def equinox_dropout(key):
    from epinet_eqx.bayes import MCDropout

    hidden_key, output_key = jr.split(key)
    layers = [
        eqx.nn.Linear(3, 8, key=hidden_key),
        eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.Dropout(0.3),
        eqx.nn.Linear(8, 4, key=output_key),
    ]
    return MCDropout(eqx.nn.Sequential(layers))


def bayes_by_backprop(key):
    from epinet_eqx.bayes import BayesByBackprop
    from epinet_eqx.networks import MLP

    return BayesByBackprop(MLP(3, 4, (8,), key=key), sigma_init=0.1)


CASES = {
    "deterministic": deterministic,
    "ensemble": ensemble,
    "ensemble_with_trunk": ensemble_with_trunk,
    "ensemble_plus": ensemble_plus,
    "dropout": dropout,
    "dropout_with_input": dropout_with_input,
    "channel_dropout": channel_dropout,
    "equinox_dropout": equinox_dropout,
    "bayes_by_backprop": bayes_by_backprop,
}
