"""The divergence of a predictor with closed forms, and the Pitman-Yor head on the testbed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import epinet_eqx as epi
from epinet_eqx import pitman_yor
from epinet_eqx.bayes import Deterministic
from epinet_eqx.networks import MLP
from epinet_eqx.testbed import Problem, closed_form_kl, exact_kl, find_setting
from reproduce.alpha_rule import alpha_of, fit, judge
from reproduce.experiments.testbed_head import Urns

pytestmark = pytest.mark.once


def test_a_network_at_alpha_one_is_what_exact_kl_makes_of_it(getkey):
    problem = Problem.generate(find_setting("d2_lambda1_rho0.1_seed0"), key=getkey())
    network = MLP(2, 2, (8,), key=getkey())
    enn, key, urns = Deterministic(network), getkey(), Urns.of((0.3, 1.0), 3)

    def log_joint(anchors, counts, alpha=1):
        table = urns.log_probs(jax.nn.log_softmax(jax.vmap(jax.vmap(network))(anchors)), alpha)
        places = urns.place[counts[..., 0].astype(int), counts[..., 1].astype(int)]
        return table[:, 0, places[:, 0]] + table[:, 1, places[:, 1]]

    how = {"taus": (1, 3), "num_batches": 20, "key": key}
    found = closed_form_kl(log_joint, problem, **how)
    expected = exact_kl(enn, problem, epi.Draws.all(enn.index), **how)
    for tau in (1, 3):
        np.testing.assert_allclose(found[tau].values, expected[tau].values, rtol=1e-3, atol=1e-5)
    other = closed_form_kl(lambda x, counts: log_joint(x, counts, alpha=0), problem, **how)
    # The marginal prediction does not depend on alpha, the joint one does.
    np.testing.assert_allclose(other[1].values, found[1].values, rtol=1e-3, atol=1e-5)
    assert abs(float(other[3].mean - found[3].mean)) > 1e-3
    assert found[3].exact and "M = inf" in str(found[3])


def test_too_many_cases_are_refused(getkey):
    problem = Problem.generate(find_setting("d2_lambda1_rho0.1_seed0"), key=getkey())
    with pytest.raises(ValueError, match="`taus` must give at most"):
        closed_form_kl(lambda x, counts: x, problem, taus=(50,), key=getkey())


@pytest.mark.parametrize("alpha", [0, 1, 2])
def test_coefficients_are_the_urn(alpha):
    alphas = (0.02, 0.4, 1.0)
    urns = Urns.of(alphas, 6)
    log_w = jax.nn.log_softmax(jnp.asarray([[0.3, -1.0], [9.0, -9.0], [60.0, -60.0]]))
    table = np.asarray(urns.log_probs(log_w, alpha))
    share = jnp.asarray(alphas[alpha])
    at = jax.jit(jax.vmap(lambda row, c: pitman_yor.counts_log_prob(row, c, share, 6), in_axes=(0, None)))
    for counts in ((0, 0), (1, 0), (0, 3), (2, 4), (6, 0)):
        np.testing.assert_allclose(table[:, urns.place[counts]], at(log_w, jnp.asarray(counts)), rtol=1e-5, atol=2e-5)


def test_rule_is_fitted_on_its_own_problems_and_finds_the_best_alpha():
    def rows(is_judged, best):
        settings = [(number, rho, 10 ** (number % 2)) for number, rho in enumerate((0.01, 0.01, 0.1, 0.1))]
        return [
            {
                "label": "mlp",
                "is_judged": is_judged,
                "problem": number,
                "temperature": rho,
                "data_ratio": ratio,
                "alpha": alpha,
                "joint": (alpha - best[rho]) ** 2,
                "joint_error": 0.1,
            }
            for number, rho, ratio in settings
            for alpha in np.linspace(0.05, 1, 20).tolist()
        ]

    known = rows(False, {0.01: 0.2, 0.1: 0.6})
    # What is judged has no part in the rule, though another one would suit it.
    everything = [*known, *rows(True, {0.01: 0.9, 0.1: 0.9})]
    rule = fit(everything, "mlp")
    assert rule == fit(known, "mlp")
    assert alpha_of(rule, 0.01, 1) == pytest.approx(0.2, abs=0.03)
    assert alpha_of(rule, 0.1, 10) == pytest.approx(0.6, abs=0.03)
    judged = judge(everything, "mlp", rule)
    assert len(judged) == 4 and judged[0]["joint"] == pytest.approx(0.7**2, abs=0.05)
