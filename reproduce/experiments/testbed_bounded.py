"""Agents whose predictions are kept away from certainty, on the Neural Testbed: what their confident mistakes cost."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.combinators import AbstractWrapper
from epinet_eqx.testbed import evaluate

from ..configs.testbed_bounded import BoundedScore
from ..record import Row
from . import testbed
from .testbed_head import groups as groups

# The share of the test inputs that the divergence of the worst is reported for.
_WORST = 0.1


class BoundedProbs(AbstractWrapper):
    """A classifier of two classes that gives each of them at least a probability, at every index."""

    enn: AbstractENN
    bound: Float[Array, ""]

    def embed(self, x: Any) -> Any:
        """Return the embedding of the classifier."""
        return self.enn.embed(x)

    def heads(self, embedding: Any, zs: Any) -> Float[Array, "samples 2"]:
        """Return the logarithms of the probabilities: a mixture with the uniform prediction."""
        log_probs = jax.nn.log_softmax(self.enn.heads(embedding, zs))
        return jnp.logaddexp(jnp.log1p(-2 * self.bound) + log_probs, jnp.log(self.bound))


def _share_of_worst(values: Float[np.ndarray, "problems batches"]) -> np.ndarray:
    """Return the share of the mean divergence that comes from the worst tenth of the test inputs."""
    ordered = np.sort(values, axis=1)
    return np.sum(ordered[:, -round(_WORST * values.shape[1]) :], axis=1) / np.sum(ordered, axis=1)


def score(configs: Sequence[BoundedScore], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return the divergences of one agent on problems of one group: one row for each bound."""
    config = configs[0]
    (other,) = named_keys(key, "problems of the bound")
    trained = testbed.train(config.variant, [own.problem for own in configs], key=key if config.is_judged else other)
    rows: list[list[Row]] = [[] for _ in configs]
    for bound in config.bounds:
        enns = eqx.filter_vmap(lambda enn, bound=bound: BoundedProbs(enn, jnp.asarray(bound)))(trained.enns)  # pyright: ignore[reportCallIssue]
        found = evaluate(enns, trained.problems, taus=(1, 10), num_batches=config.num_batches, keys=trained.test_keys)
        marginal, joint = jax.device_get((found[1].values, found[10].values))
        worst = _share_of_worst(joint)
        for number, own in enumerate(rows):
            own.append(
                {
                    **trained.row(config.variant, number),
                    "is_judged": config.is_judged,
                    "bound": bound,
                    "marginal": float(np.mean(marginal[number])),
                    "joint": float(np.mean(joint[number])),
                    "share_of_worst": worst[number],
                    "seconds": round(trained.seconds, 3),
                }
            )
    return rows
