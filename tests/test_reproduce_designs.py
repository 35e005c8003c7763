"""The search for designs: its functions, the exact Gaussian process, incoherent samples, claims and the figure."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from reproduce.artifacts import dec_designs
from reproduce.artifacts.dec_designs import DESIGN_AGENTS, Designs
from reproduce.claims import Verdict, judge
from reproduce.experiments import designs
from reproduce.registry import CLAIMS, REGISTRY

pytestmark = pytest.mark.once

MAXIMIZERS = {
    "branin": [((a + 5) / 15, b / 15) for a, b in ((-math.pi, 12.275), (math.pi, 2.275), (3 * math.pi, 2.475))],
    "hartmann": [(0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)],
}


@pytest.mark.parametrize("name", MAXIMIZERS)
def test_functions_have_their_maxima_where_they_are_known_to_be(name, getkey):
    surface = designs.SURFACES[name]
    values = jax.vmap(surface.function)(jnp.asarray(MAXIMIZERS[name]))
    np.testing.assert_allclose(values, surface.largest, atol=2e-4)
    others = jax.vmap(surface.function)(jr.uniform(getkey(), (1000, surface.num_dims)))
    assert float(jnp.max(others)) <= surface.largest + 1e-4


def test_rewards_are_standardized(getkey):
    bandit = designs.make_bandit("branin", 5000)
    found = bandit.round(key=getkey())
    assert float(jnp.mean(found.expected)) == pytest.approx(0, abs=0.1)
    assert float(jnp.std(found.expected)) == pytest.approx(1, abs=0.1)
    np.testing.assert_allclose(jnp.std(found.inputs, axis=0), 1, atol=0.05)


def test_the_kernel_is_that_of_matern():
    x = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    kernel = designs.matern(x, x, jnp.asarray(5.0))
    far = (1 + 5**0.5 + 5 / 3) * math.exp(-(5**0.5))
    np.testing.assert_allclose(kernel, [[1, far], [far, 1]], rtol=1e-4)


def test_the_gaussian_process_knows_what_it_has_observed(getkey):
    agent = designs.GaussianProcess()
    x = 2 * jr.normal(getkey(), (6, 2))
    rewards = jnp.array([0.3, -1.0, 1.5, 0.2, 1.1, -0.4])
    state = agent.init(x, 10, key=getkey())
    for step in range(6):
        state = agent.observe(state, jnp.asarray(step), x[step], rewards[step], key=getkey())
    # Of designs that it knows, every sample has the same best one.
    for key in jr.split(getkey(), 5):
        assert int(jnp.argmax(agent.policy(state, x, key=key))) == 2
    # Of those that it does not know, samples differ.
    new = 2 * jr.normal(getkey(), (20, 2)) + 10
    assert len({int(jnp.argmax(agent.policy(state, new, key=key))) for key in jr.split(getkey(), 8)}) > 1


def test_apart_each_candidate_has_a_sample_of_its_own():
    rewards = jnp.array([[0.0, 9.0, 1.0, 9.0], [9.0, 2.0, 9.0, 3.0]])
    np.testing.assert_array_equal(designs.ApartSampling(2).probs(rewards), [0, 0, 0, 1])


def test_searches_come_nearer_from_the_same_candidates():
    config = replace(
        next(iter(Designs(num_runs=2, num_evaluations=6, num_candidates=4, num_points=5).units().values())),
        agent="chance",
    )
    (rows,) = designs.run([config], key=jr.key(0))
    assert [row["evaluations"] for row in rows if row["seed"] == 0] == [1, 2, 3, 4, 5, 6]
    for seed in (0, 1):
        gaps = [row["gap"] for row in rows if row["seed"] == seed]
        assert gaps == sorted(gaps, reverse=True) and gaps[-1] > 0
    agents = {name: designs.make_agent(replace(config, agent=name)) for name in DESIGN_AGENTS}
    assert isinstance(agents["apart"].rule, designs.ApartSampling) and agents["epinet"].rule.num_samples == 1
    assert agents["ensemble+"].num_index_samples is None


def rows_of(gaps):
    return [
        {"surface": surface, "agent": agent, "seed": seed, "evaluations": step, "gap": gap / step + 0.01 * seed}
        for surface in ("branin", "hartmann")
        for agent, gap in gaps.items()
        for seed in range(4)
        for step in (1, 10)
    ]


def test_claims_about_designs_follow_from_the_last_evaluation():
    gaps = {"epinet": 2.0, "ensemble+": 1.0, "gp": 1.0, "apart": 3.0, "chance": 5.0}
    verdicts = {
        "branin-chance": Verdict.HOLDS,
        "hartmann-chance": Verdict.HOLDS,
        "branin-gp": Verdict.FAILS,
        "hartmann-gp": Verdict.FAILS,
        "apart": Verdict.HOLDS,
        "ensemble-plus": Verdict.FAILS,
    }
    rows = rows_of(gaps)
    for name, expected in verdicts.items():
        found = judge(CLAIMS[f"dec_designs-{name}"], rows)
        assert found.verdict is expected
    assert judge(CLAIMS["dec_designs-branin-gp"], rows).measurement.value == pytest.approx(0.1 / 0.515)
    figure = REGISTRY["dec_designs"].draw(rows)
    assert len(figure.axes) == 2 and dec_designs.draw(rows[: len(rows) // 2]).axes
