"""The Pitman-Yor head on the Neural Testbed: marginal predictions of trained agents, made joint by one number.

Joint probabilities are closed forms, so the divergence is computed without any index, by the testbed's exact average
over 286 cases. For two classes, the probability of `a` labels of the one class and `b` of the other at an anchor is a
polynomial in the two probabilities with positive coefficients: one product does it for all anchors, cases and alphas.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import AbstractENN, named_keys, pitman_yor
from epinet_eqx.testbed import Problem, closed_form_kl, evaluate

from ..configs.testbed_head import HeadScore
from ..record import Row
from . import testbed

_CHUNK = 4


def groups(configs: Mapping[str, Any]) -> list[list[str]]:
    """Return the runs that are trained at once."""
    found = []
    for is_judged in (False, True):
        own: Any = {name: config for name, config in configs.items() if config.is_judged == is_judged}
        found += testbed.groups(own) if own else []
    return found


@dataclasses.dataclass(frozen=True)
class Urns:
    """Coefficients of the urn of two classes for several alphas.

    Attributes:
        exponents: exponents of both probabilities in each monomial, beyond one factor of each class that occurs.
        coefficients: of each monomial, for each alpha and each pair of counts.
        place: number of a pair of counts.
    """

    exponents: np.ndarray
    coefficients: np.ndarray
    place: np.ndarray
    alphas: tuple[float, ...]

    @staticmethod
    def of(alphas: tuple[float, ...], tau: int) -> "Urns":
        """Return the coefficients for up to `tau` labels."""
        pairs = [(a, b) for a in range(tau + 1) for b in range(tau + 1 - a)]
        place = np.full((tau + 1, tau + 1), -1)
        for number, (a, b) in enumerate(pairs):
            place[a, b] = number
        coefficients = np.zeros((len(alphas), len(pairs), len(pairs)), np.float32)
        for row, alpha in enumerate(alphas):
            with jax.ensure_compile_time_eval():
                stirling = np.asarray(pitman_yor.log_stirling(alpha, tau), np.float64)
            for (a, b), number in zip(pairs, range(len(pairs)), strict=True):
                for s in range(1 if a else 0, a + 1):
                    for t in range(1 if b else 0, b + 1):
                        total = s + t
                        if not total:
                            coefficients[row, number, place[0, 0]] = 1
                            continue
                        log = (total - 1) * math.log(alpha) + math.lgamma(total) - math.lgamma(a + b)
                        log += stirling[a, s] + stirling[b, t]
                        coefficients[row, number, place[s - bool(a), t - bool(b)]] = math.exp(log)
        return Urns(np.array(pairs), coefficients, place, alphas)

    def log_probs(self, log_w: Float[Array, "... 2"], alpha: int) -> Float[Array, "... pairs"]:
        """Return the log-probability of labels with each pair of counts, at the alpha of this number."""
        exponents = jnp.asarray(self.exponents, dtype=float)
        if self.alphas[alpha] == 1:
            # Independent labels: only the highest powers are left, which underflow.
            return jnp.einsum("...c,pc->...p", log_w, exponents, precision="highest")
        monomials = jnp.exp(jnp.einsum("...c,pc->...p", log_w, exponents, precision="highest"))
        sums = jnp.einsum("...m,pm->...p", monomials, jnp.asarray(self.coefficients[alpha]), precision="highest")
        leading = jnp.einsum("...c,pc->...p", log_w, jnp.minimum(exponents, 1.0), precision="highest")
        return leading + jnp.log(sums)


def marginal_log_probs(
    enn: AbstractENN, x: Float[Array, "anchors features"], num_samples: int, *, key: PRNGKeyArray
) -> Float[Array, "anchors 2"]:
    """Return the agent's marginal predictions: over the support of its index if there is one, else over samples."""
    support = enn.index.support()
    zs = enn.index.sample_many(num_samples, key=key) if support is None else support
    embeddings = jax.vmap(enn.embed)(x)

    def log_p(z: Any) -> Float[Array, "anchors 2"]:
        return jax.nn.log_softmax(jax.vmap(lambda embedding: enn.head(embedding, z))(embeddings))

    count = jax.tree.leaves(zs)[0].shape[0]
    return jax.nn.logsumexp(jax.lax.map(log_p, zs, batch_size=_CHUNK), axis=0) - math.log(count)


@eqx.filter_jit
def _evaluate(
    enns: AbstractENN, problems: Problem, keys: Array, alphas: tuple[float, ...], num_batches: int, num_samples: int
) -> tuple[Array, Array]:
    """Return the marginal divergence, and the joint one for each alpha: mean and standard error, for each problem."""
    arrays, rest = eqx.partition((enns, problems), eqx.is_array)
    urns = Urns.of(alphas, 10)

    def member(args: tuple[Any, Array]) -> tuple[Array, Array]:
        enn, problem = eqx.combine(args[0], rest)
        (index_key,) = named_keys(args[1], "indices")

        known: list[Array] = []

        def kl(alpha: int, taus: tuple[int, ...]) -> list[Array]:
            def log_joint(anchors: Array, counts: np.ndarray) -> Array:
                # The anchors are the same each time, and most of the work is done on them.
                if not known:
                    x = anchors.reshape(-1, anchors.shape[-1])
                    known.append(marginal_log_probs(enn, x, num_samples, key=index_key))
                table = urns.log_probs(known[0].reshape(*anchors.shape[:2], 2), alpha)
                numbers = urns.place[counts[..., 0].astype(int), counts[..., 1].astype(int)]
                return table[:, 0, numbers[:, 0]] + table[:, 1, numbers[:, 1]]

            found = closed_form_kl(log_joint, problem, taus=taus, num_batches=num_batches, key=args[1])
            return [jnp.stack([found[tau].mean, found[tau].standard_error]) for tau in taus]

        return kl(0, (1,))[0], jnp.stack([kl(number, (10,))[0] for number in range(len(alphas))])

    return jax.lax.map(member, (arrays, keys))


def score(configs: Sequence[HeadScore], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return the divergences of one agent's predictions through the head, on problems of one group."""
    config = configs[0]
    (other,) = named_keys(key, "problems of the rule")
    trained = testbed.train(config.variant, [own.problem for own in configs], key=key if config.is_judged else other)
    tested = eqx.tree_at(lambda problem: problem.data, trained.problems, None)
    marginal, joint = _evaluate(
        trained.enns, tested, trained.test_keys, config.alphas, config.num_batches, config.num_samples
    )
    marginal, joint = np.asarray(marginal), np.asarray(joint)
    own = np.full((2, len(configs)), np.nan)
    if config.is_judged:
        # What the agent predicts by its own indices, as everywhere.
        found = evaluate(
            trained.enns, trained.problems, taus=(10,), num_batches=config.num_batches, keys=trained.test_keys
        )[10]
        own = np.stack([found.mean, found.standard_error])
    return [
        [
            {
                **trained.row(config.variant, number),
                "is_judged": config.is_judged,
                "alpha": alpha,
                "marginal": marginal[number, 0],
                "marginal_error": marginal[number, 1],
                "joint": joint[number, place, 0],
                "joint_error": joint[number, place, 1],
                "own_joint": own[0, number],
                "own_joint_error": own[1, number],
                "seconds": round(trained.seconds, 3),
            }
            for place, alpha in enumerate(config.alphas)
        ]
        for number in range(len(configs))
    ]
