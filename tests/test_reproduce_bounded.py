"""Predictions that are kept from certainty: probabilities, the chosen bound, what it leaves of the regret."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx.bayes import Deterministic
from epinet_eqx.networks import MLP
from reproduce.artifacts import testbed_bounded
from reproduce.claims import Verdict, judge
from reproduce.configs.testbed_bounded import Bounded
from reproduce.experiments import testbed_bounded as experiment
from reproduce.registry import CLAIMS

pytestmark = pytest.mark.once


def row(agent, problem, bound, joint, *, is_judged=True, share=0.2):
    known = {"agent": agent, "label": agent, "problem": problem, "input_dim": 2, "data_ratio": 1, "temperature": 0.01}
    return {**known, "is_judged": is_judged, "bound": bound, "joint": joint, "share_of_worst": share}


@pytest.mark.parametrize("bound", [0.0, 0.1])
def test_probabilities_stay_away_from_certainty(bound, getkey):
    enn = Deterministic(MLP(2, 2, (4,), key=getkey()))
    xs = 1000 * jr.normal(getkey(), (20, 2))
    z = enn.index.sample(key=getkey())
    plain = jax.nn.softmax(jax.vmap(lambda x: enn(x, z))(xs))
    bounded = experiment.BoundedProbs(enn=enn, bound=jnp.asarray(bound))
    found = jax.nn.softmax(jax.vmap(lambda x: bounded(x, z))(xs))
    assert jnp.min(plain) < 0.01
    assert jnp.min(found) >= bound - 1e-6
    assert jnp.max(jnp.abs(found - ((1 - 2 * bound) * plain + bound))) < 1e-6


def test_the_worst_tenth_of_the_inputs():
    even, one = np.ones((1, 20)), np.zeros((1, 20))
    one[0, 3] = 5.0
    assert experiment._share_of_worst(even) == pytest.approx([0.1])
    assert experiment._share_of_worst(one) == pytest.approx([1.0])


def test_the_bound_is_chosen_on_other_problems(monkeypatch):
    rows = [
        row("epinet", p, bound, value, is_judged=False) for p in (1, 2) for bound, value in ((0.0, 2.0), (0.1, 1.0))
    ]
    rows += [row("epinet", 1, bound, value) for bound, value in ((0.0, 3.0), (0.1, 4.0))]
    rows += [row("epinet", 2, bound, value, share=0.7) for bound, value in ((0.0, 9.0), (0.1, 5.0))]
    assert testbed_bounded.chosen_bound(rows, "epinet") == 0.1
    assert judge(CLAIMS["testbed_bounded-epinet"], rows).measurement.value == pytest.approx(-1.5)
    assert judge(CLAIMS["testbed_bounded-mlp"], rows).verdict is Verdict.UNDECIDED
    # The second problem is the worst: of 8 nats beyond its optimum 4 are left.
    optima = [{"agent": "bayes", "problem": p, "joint": 1.0} for p in (1, 2)]
    monkeypatch.setattr(testbed_bounded, "accepted_optima", lambda: optima)
    assert judge(CLAIMS["testbed_bounded-worst"], rows).measurement.value == pytest.approx(0.5)
    assert judge(CLAIMS["testbed_bounded-inputs"], rows).measurement.value == 0.7
    assert testbed_bounded.draw(rows).axes
    assert judge(CLAIMS["testbed_bounded-worst"], []).verdict is Verdict.UNDECIDED


def test_other_problems_are_of_the_same_settings():
    units = Bounded().units()
    assert len(units) == 2 * 2 * 15
    for group in experiment.groups(units):
        assert len({units[name].is_judged for name in group}) == 1
        assert len({units[name].variant for name in group}) == 1
