"""The KL divergence on test batches that were made elsewhere (Section 5)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from .._counts import count_log_probs
from .._draws import Draws, check_draws, outputs_at
from .._enn import AbstractENN
from .._likelihoods import CATEGORICAL, target_log_probs
from ..metrics import Estimate
from ._options import check_taus
from ._problem import Problem


def given_kl(
    enn: AbstractENN,
    problem: Problem,
    draws: Draws,
    *,
    taus: tuple[int, ...] | None = None,
) -> dict[int, Estimate]:
    r"""Return the KL divergence for each tau from the test batches of a problem that was made from arrays.

    The mean over batches of $\ln P(y_{1:\tau}) - \ln \hat P(y_{1:\tau})$, with the given true log-likelihoods; the
    standard error is over batches. A pure function, which may be compiled and mapped.

    Args:
        enn: the ENN.
        problem: a problem with test batches.
        draws: the indices to average over; the original testbed samples 1000.
        taus: numbers of labels, of which there must be test batches; by default all there are.
    """
    tests = {batches.tau: batches for batches in problem.tests}
    taus = problem.taus if taus is None else taus
    check_taus(taus)
    for tau in taus:
        if tau not in tests:
            raise ValueError(f"`taus` must be those of the given test batches, {problem.taus}; got {tau}.")
    draws = check_draws(enn, draws)

    def estimate(tau: int) -> Estimate:
        x, y = tests[tau].x, tests[tau].y
        embeddings = jax.vmap(enn.embed)(x.reshape(-1, x.shape[-1]))

        def log_p_at(zs: Shaped[Array, "samples ..."]) -> Float[Array, "samples batches tau"]:
            log_p = target_log_probs(CATEGORICAL, outputs_at(enn, embeddings, zs), y.reshape(-1))
            return log_p.reshape(-1, *y.shape)

        predicted = count_log_probs(log_p_at, jnp.ones((1, tau)), draws)[:, 0]
        return Estimate(tests[tau].log_likelihoods - predicted, draws.num_samples, tau, draws.exact)

    return {tau: estimate(tau) for tau in taus}
