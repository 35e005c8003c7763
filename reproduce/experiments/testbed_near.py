"""Joint predictions of different inputs on the Neural Testbed, where the truth is known.

A cluster is several inputs around a center, from unrelated ones to one input repeated, with one label each. The
divergence of a joint prediction from the truth, less that of the product of its marginals, is what an agent knows
about how its errors at the inputs go together.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epinet_eqx import AbstractENN, named_keys, pitman_yor
from epinet_eqx.networks import FunctionNetwork
from epinet_eqx.testbed import Problem

from ..configs.testbed_near import NearScore
from ..record import Row
from . import testbed
from .testbed_head import groups as groups

_CHUNK = 20
_FREQUENCIES = 20


def make_head(input_dim: int, *, key: PRNGKeyArray) -> pitman_yor.PitmanYor:
    """Return the sampled head on known logits, with fields over inputs; these are standard normal."""
    example_key, field_key = named_keys(key, "examples", "field")
    x = jr.normal(example_key, (1000, input_dim))
    return pitman_yor.attach(
        FunctionNetwork(lambda pair: pair), (jnp.zeros((1000, 2)), x), num_frequencies=_FREQUENCIES, key=field_key
    )


def draw_clusters(
    input_dim: int, correlation: float, num_clusters: int, cluster_size: int, *, key: PRNGKeyArray
) -> Float[Array, "clusters size features"]:
    """Draw standard normal inputs that have this correlation with the others of their cluster."""
    center_key, own_key = named_keys(key, "centers", "inputs")
    centers = jr.normal(center_key, (num_clusters, 1, input_dim))
    own = jr.normal(own_key, (num_clusters, cluster_size, input_dim))
    return math.sqrt(correlation) * centers + math.sqrt(1 - correlation) * own


def index_log_probs(
    enn: AbstractENN, x: Any, num_samples: int, *, key: PRNGKeyArray
) -> Float[Array, "samples inputs 2"]:
    """Return what each index predicts: of the support if there is one, else of samples."""
    support = enn.index.support()
    zs = enn.index.sample_many(num_samples, key=key) if support is None else support
    embeddings = jax.vmap(enn.embed)(x)

    def log_p(z: Any) -> Float[Array, "inputs 2"]:
        return jax.nn.log_softmax(jax.vmap(lambda embedding: enn.head(embedding, z))(embeddings))

    return jax.lax.map(log_p, zs, batch_size=_CHUNK)


def divergences(
    log_p: Float[Array, "samples clusters size 2"],
    y: Int[Array, "clusters size"],
    true: Float[Array, "clusters size"],
) -> Float[Array, "2 clusters"]:
    """Return, for each cluster, the log-likelihood that the marginals lack to the truth, and the joint prediction."""
    own = jnp.take_along_axis(log_p, y[None, :, :, None], axis=3)[..., 0]
    log_count = math.log(log_p.shape[0])
    marginal = jax.nn.logsumexp(own, axis=0) - log_count
    joint = jax.nn.logsumexp(jnp.sum(own, axis=2), axis=0) - log_count
    return jnp.stack([jnp.sum(true - marginal, axis=1), jnp.sum(true, axis=1) - joint])


def _evaluate(
    enns: AbstractENN, problems: Problem, keys: Array, head: pitman_yor.PitmanYor, config: NearScore
) -> Float[Array, "problems correlations ways 2 clusters"]:
    """Return the divergences of the agents' own predictions, and through the head at each pair of its parameters."""
    arrays, rest = eqx.partition((enns, problems), eqx.is_array)
    pairs = jnp.asarray(list(itertools.product(config.alphas, config.length_scales)))

    def member(args: tuple[Any, Array]) -> Array:
        enn, problem = eqx.combine(args[0], rest)
        known, truth_of = problem.knowledge, problem.model
        assert truth_of is not None
        input_key, label_key, index_key = named_keys(args[1], "inputs", "labels", "indices")

        def at(correlation: float) -> Array:
            # The same draws at each correlation and for each way, so that differences between them have less noise.
            own_key = jr.clone(input_key)
            x = draw_clusters(known.input_dim, correlation, config.num_clusters, config.cluster_size, key=own_key)
            flat = x.reshape(-1, known.input_dim)
            shape = (config.num_clusters, config.cluster_size)
            truth = jax.nn.log_softmax(jax.vmap(truth_of)(flat))
            y = jr.categorical(jr.clone(label_key), truth)
            true = jnp.take_along_axis(truth, y[:, None], axis=1).reshape(shape)

            def score(enn: AbstractENN, x: Any) -> tuple[Array, Array]:
                log_p = index_log_probs(enn, x, config.num_samples, key=jr.clone(index_key))
                return divergences(log_p.reshape(-1, *shape, 2), y.reshape(shape), true), log_p

            own, log_p = score(enn, flat)
            mean = jax.nn.logsumexp(log_p, axis=0)

            def through(pair: Float[Array, " 2"]) -> Array:
                return score(head.with_parameters(alpha=pair[0], length_scale=pair[1]), (mean, flat))[0]

            return jnp.concatenate([own[None], jax.lax.map(through, pairs)])

        return jnp.stack([at(correlation) for correlation in config.correlations])

    return jax.lax.map(member, (arrays, keys))


_compiled = eqx.filter_jit(_evaluate)


def score(configs: Sequence[NearScore], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return the divergences of one agent on problems of one group."""
    config = configs[0]
    other, head_key = named_keys(key, "problems of the rule", "head")
    trained = testbed.train(config.variant, [own.problem for own in configs], key=key if config.is_judged else other)
    tested = eqx.tree_at(lambda problem: problem.data, trained.problems, None)
    head = make_head(trained.settings[0].input_dim, key=head_key)
    found = np.asarray(_compiled(trained.enns, tested, trained.test_keys, head, config))
    ways: list[Mapping[str, Any]] = [
        {"how": "own"},
        *(
            {"how": "field", "alpha": alpha, "length_scale": length_scale}
            for alpha, length_scale in itertools.product(config.alphas, config.length_scales)
        ),
    ]
    root = math.sqrt(config.num_clusters)
    return [
        [
            {
                **trained.row(config.variant, number),
                "is_judged": config.is_judged,
                **way,
                "correlation": correlation,
                "marginal": found[number, place, column, 0].mean(),
                "joint": found[number, place, column, 1].mean(),
                "joint_error": found[number, place, column, 1].std(ddof=1) / root,
                "gain": -np.diff(found[number, place, column], axis=0).mean(),
                "seconds": round(trained.seconds, 3),
            }
            for place, correlation in enumerate(config.correlations)
            for column, way in enumerate(ways)
        ]
        for number in range(len(configs))
    ]
