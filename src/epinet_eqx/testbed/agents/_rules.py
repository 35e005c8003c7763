"""Rules that several agents share: problem-dependent decay, networks, numbers of steps."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..._keys import named_keys
from ...networks import MLP
from .._problem import PriorKnowledge


def over_data(knowledge: PriorKnowledge) -> Float[Array, ""]:
    r"""Return $D / T$, one over the data ratio."""
    return knowledge.input_dim / knowledge.num_train.astype(float)


def adaptive_decay(scale: float, knowledge: PriorKnowledge) -> Float[Array, ""]:
    r"""Return $s \sqrt\rho \, D / T$: the $L_2$ decay of most agents, for a mean loss over examples."""
    return scale * jnp.sqrt(knowledge.temperature) * over_data(knowledge)


def mlp_with_bias(in_dim: int, out_dim: int, hidden: tuple[int, ...], *, key: PRNGKeyArray) -> MLP:
    """Return an MLP whose first layer has a bias of the distribution of its weights; the other biases are zero."""
    network_key, bias_key = named_keys(key, "network", "bias")
    network = MLP(in_dim, out_dim, hidden, feature_layers=(), key=network_key)
    first = network.layers[0].bias
    bias = jr.truncated_normal(bias_key, -2.0, 2.0, first.shape) / math.sqrt(in_dim)
    return eqx.tree_at(lambda mlp: mlp.layers[0].bias, network, bias)


def scaled_steps(num_steps: int, input_dim: int, num_train: int) -> int:
    """Return five times the steps for much data (a ratio above 500), a fifth for little (below 5)."""
    ratio = num_train / input_dim
    if ratio > 500:
        return 5 * num_steps
    return max(1, num_steps // 5) if ratio < 5 else num_steps
