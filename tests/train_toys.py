"""Small models and data for the tests of training at scale; also imported by their helper programs."""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from epinet_eqx.networks import BatchNorm


class ToyNetwork(eqx.Module):
    """Linear, norm, ReLU, dropout, linear; features are what the last layer sees."""

    first: eqx.nn.Linear
    norm: BatchNorm
    dropout: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, in_dim, width, num_classes, *, dropout=0.0, key):
        first_key, last_key = jr.split(key)
        self.first = eqx.nn.Linear(in_dim, width, key=first_key)
        self.norm = BatchNorm(width, debias=False)
        self.dropout = eqx.nn.Dropout(dropout)
        self.last = eqx.nn.Linear(width, num_classes, key=last_key)

    def with_features(self, x, state, *, key=None):
        hidden, state = self.norm(self.first(x), state)
        features = self.dropout(jax.nn.relu(hidden), key=key)
        return self.last(features), features, state

    def __call__(self, x, state, *, key=None):
        output, _, state = self.with_features(x, state, key=key)
        return output, state


def toy_network(*, in_dim=4, width=8, num_classes=3, dropout=0.0, key):
    """Return a network and its state."""
    return eqx.nn.make_with_state(ToyNetwork)(in_dim, width, num_classes, dropout=dropout, key=key)


def toy_arrays(num_examples=24, in_dim=4, num_classes=3):
    """Return inputs and labels that can be learned."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_examples, in_dim)).astype(np.float32)
    y = np.argmax(x[:, :num_classes] + 0.3 * rng.normal(size=(num_examples, num_classes)), axis=1)
    return x, y.astype(np.int32)
