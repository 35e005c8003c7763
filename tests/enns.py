"""Every ENN of the library, small: 3 inputs, 4 classes. `name -> constructor(key)`."""

import enns_baselines
import enns_bayes1
import enns_bayes2
import jax
import jax.numpy as jnp
import jax.random as jr

import epinet_eqx as epi
from epinet_eqx.combinators import Mirrored
from epinet_eqx.epinet import Epinet, MLPEpinet, conv_prior, mlp_prior
from epinet_eqx.indices import GaussianWithUnitIndex, ScaledGaussianIndex
from epinet_eqx.networks import MLP, FunctionNetwork

IN_DIM, NUM_CLASSES = 3, 4


def _attached(key, **options):
    base_key, key = jr.split(key)
    base = MLP(IN_DIM, NUM_CLASSES, (8,), feature_layers=(0, -1), key=base_key)
    return epi.attach(base, out_size=NUM_CLASSES, index_dim=5, hidden=(7, 6), key=key, **options)


def _testbed(key):
    prior_key, key = jr.split(key)
    return _attached(key, freeze=False, prior_scale=0.0, priors=(mlp_prior(IN_DIM, 5, NUM_CLASSES, key=prior_key),))


def _images(key):
    prior_key, key = jr.split(key)
    base = FunctionNetwork(lambda x: (jnp.tile(x, 2)[:NUM_CLASSES], jnp.tanh(x)))
    prior = conv_prior(
        (1, 1, IN_DIM), 5, NUM_CLASSES, channels=(2,), kernels=(2,), strides=(1,), scale=0.5, key=prior_key
    )
    # The conv prior reads images: this ENN sees its input as one row of pixels.
    enn = epi.attach(
        lambda x: base.with_features(x[0, 0]),
        out_size=NUM_CLASSES,
        index_dim=5,
        priors=(prior,),
        example=jnp.zeros((1, 1, IN_DIM)),
        key=key,
    )
    return _Row(enn)


class _Row(epi.AbstractENN):
    """Shows a vector to an ENN for images as a picture of one row."""

    enn: epi.AbstractENN

    @property
    def index(self):
        return self.enn.index

    def embed(self, x):
        return self.enn.embed(x[None, None, :])

    def heads(self, embedding, zs):
        return self.enn.heads(embedding, zs)


def _on_index(index):
    def make(key):
        base_key, key = jr.split(key)
        base = MLP(IN_DIM, NUM_CLASSES, (8,), activation=jax.nn.tanh, key=base_key)
        learnable = MLPEpinet(8, index.size, NUM_CLASSES, hidden=(), key=key)
        return Epinet(base, learnable, (), index)

    return make


CASES = {
    "epinet on a frozen base": _attached,
    "epinet of the testbed": _testbed,
    "epinet with a conv prior": _images,
    "epinet with a scaled index": _on_index(ScaledGaussianIndex(5)),
    "epinet with a unit index": _on_index(GaussianWithUnitIndex(5)),
    "tempered epinet": lambda key: epi.Tempered(_attached(key), 0.7),
    "mirrored epinet": lambda key: Mirrored(_attached(key), 0.5),
    **enns_bayes1.CASES,
    **enns_bayes2.CASES,
    **enns_baselines.CASES,
}
