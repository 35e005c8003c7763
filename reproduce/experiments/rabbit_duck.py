"""Figures 1 and 3: two ENNs with the same marginals, one of an ambiguous drawing, one that has not seen enough data."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from epinet_eqx import AbstractENN, Draws, predict
from epinet_eqx.indices import AbstractIndex, GaussianIndex

from ..artifacts.fig01 import RabbitDuck
from ..artifacts.fig03 import EnnRabbitDuck
from ..record import Row

CLASSES = ("R", "D")
"""The two classes, rabbit and duck."""


class SignIndex(AbstractIndex):
    """The sign of a standard normal index: all that the two ENNs can see of it, with a support to average over."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one index."""
        return (1,)

    @property
    def size(self) -> int:
        """The number of values."""
        return 2

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " index"]:
        """Draw one sign."""
        return jr.rademacher(key, self.shape, dtype=float)

    def score(self, z: Float[Array, " index"], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Raise: no function of a sign is standard normal."""
        raise TypeError("A sign has no standard normal score: the bootstraps need a Gaussian or particle index.")

    def support(self) -> Float[Array, "samples index"]:
        """Return both signs: the average over these is exact."""
        return jnp.array([[-1.0], [1.0]])


class Ambiguous(AbstractENN):
    """An ENN whose output does not depend on the index (Figure 3a): no data would resolve its uncertainty."""

    logits: Float[Array, " classes"]
    index: AbstractIndex

    def embed(self, x: Any) -> Float[Array, " classes"]:
        """Return the logits, which are those of any drawing."""
        return self.logits

    def heads(
        self, embedding: Float[Array, " classes"], zs: Shaped[Array, "samples ..."]
    ) -> Float[Array, "samples classes"]:
        """Return the logits once per index."""
        return jnp.broadcast_to(embedding, (zs.shape[0], *embedding.shape))


class Insufficient(AbstractENN):
    """An ENN that is certain, and of what depends on the sign of the index (Figure 3b): one label would settle it."""

    logit_gap: Float[Array, ""]
    index: AbstractIndex

    def embed(self, x: Any) -> Float[Array, " classes"]:
        """Return the logits at a positive index."""
        return self.logit_gap * jnp.array([0.5, -0.5])

    def heads(
        self, embedding: Float[Array, " classes"], zs: Float[Array, "samples index"]
    ) -> Float[Array, "samples classes"]:
        """Return the logits at many indices."""
        return jnp.sign(zs) * embedding[None, :]


def make_enns(logit_gap: float, index: AbstractIndex) -> dict[str, AbstractENN]:
    """Return both ENNs by name."""
    return {
        "ambiguous": Ambiguous(logits=jnp.zeros(2), index=index),
        "insufficient": Insufficient(logit_gap=jnp.asarray(logit_gap), index=index),
    }


def drawings(tau: int) -> Float[Array, "tau pixels"]:
    """Return the same drawing `tau` times; the ENNs do not look at it."""
    return jnp.zeros((tau, 1))


def _tables(enn: AbstractENN, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of one label and of two."""
    marginal = predict.marginal_log_probs(enn, drawings(1), draws)[0]
    return np.exp(marginal), np.exp(predict.joint_log_probs(enn, drawings(2), draws))


def _standard_errors(enn: AbstractENN, num_samples: int, *, key: PRNGKeyArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard errors of the Monte Carlo tables, from the spread of the tables over the indices."""
    outputs = predict.sample(enn, drawings(2), Draws.sample(enn.index, num_samples, key=key)).outputs
    probs = np.asarray(jax.nn.softmax(outputs))
    joint = probs[:, 0, :, None] * probs[:, 1, None, :]
    marginal_error, joint_error = (np.std(p, axis=0, ddof=1) / num_samples**0.5 for p in (probs[:, 0], joint))
    return marginal_error, joint_error


def tables(config: RabbitDuck, *, key: PRNGKeyArray) -> list[Row]:
    """Return the marginal, joint and conditional predictions of both ENNs, exact and by Monte Carlo."""
    rows: list[Row] = []
    exact_enns = make_enns(config.logit_gap, SignIndex())
    for name, enn in make_enns(config.logit_gap, GaussianIndex(1)).items():
        exact = exact_enns[name]
        marginal, joint = _tables(exact, Draws.all(exact.index))
        marginal_mc, joint_mc = _tables(enn, Draws.sample(enn.index, config.num_samples, key=key))
        marginal_se, joint_se = _standard_errors(enn, config.num_samples, key=key)
        common = {"enn": name, "num_samples": config.num_samples}
        for c, label in enumerate(CLASSES):
            sampled = {"monte_carlo": marginal_mc[c], "standard_error": marginal_se[c]}
            rows.append({**common, "table": "marginal", "y1": label, "exact": marginal[c], **sampled})
        for c1, label1 in enumerate(CLASSES):
            given = predict.conditional_log_probs(
                exact, drawings(1), np.array([c1]), np.zeros(1), Draws.all(exact.index)
            )
            for c2, label2 in enumerate(CLASSES):
                cell = {**common, "y1": label1, "y2": label2}
                sampled = {"monte_carlo": joint_mc[c1, c2], "standard_error": joint_se[c1, c2]}
                rows.append({**cell, "table": "joint", "exact": joint[c1, c2], **sampled})
                rows.append({**cell, "table": "conditional", "exact": np.exp(given)[c2]})
    return rows


def _cells(common: Row, table: np.ndarray) -> list[Row]:
    """Return one row per cell of a two-by-two table."""
    return [
        {**common, "y1": label1, "y2": label2, "probability": table[c1, c2]}
        for c1, label1 in enumerate(CLASSES)
        for c2, label2 in enumerate(CLASSES)
    ]


def outputs(config: EnnRabbitDuck, *, key: PRNGKeyArray) -> list[Row]:
    """Return the outputs of both ENNs along the index, their tables at some indices, and the integrals of these."""
    rows: list[Row] = []
    curve = np.linspace(-config.z_max, config.z_max, config.num_points)
    zs = jnp.asarray(np.concatenate([curve, config.table_indices]), dtype=float)[:, None]
    exact_enns = make_enns(config.logit_gap, SignIndex())
    for name, enn in make_enns(config.logit_gap, GaussianIndex(1)).items():
        probs = np.asarray(jax.nn.softmax(predict.sample(enn, drawings(1), Draws.given(enn.index, zs)).outputs))[:, 0]
        for z, prob in zip(curve, probs[: config.num_points], strict=True):
            rows.append({"enn": name, "kind": "curve", "z": z, "probability": prob[0]})
        for z, prob in zip(config.table_indices, probs[config.num_points :], strict=True):
            rows += _cells({"enn": name, "kind": "at z", "z": z}, prob[:, None] * prob[None, :])
        exact = exact_enns[name]
        _, joint = _tables(exact, Draws.all(exact.index))
        rows += _cells({"enn": name, "kind": "integral"}, joint)
    return rows
