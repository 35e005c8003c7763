"""Small experiments with pinned seeds, whose results say whether the library still learns what it did."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import jax.random as jr

from epinet_eqx import AbstractENN, Draws, attach, fit, named_keys
from epinet_eqx.data import digits
from epinet_eqx.epinet import mlp_prior
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.metrics import log_losses
from epinet_eqx.networks import MLP
from epinet_eqx.testbed import (
    AGENTS,
    AbstractAgent,
    Setting,
    evaluate,
    generate_problems,
    problem_keys,
    train_agent,
)
from epinet_eqx.training import fit_ensemble

SETTINGS = [Setting(input_dim=2, data_ratio=10, temperature=0.1, seed=seed, number=seed + 1) for seed in range(3)]
STEPS = 500
PARTICLES = 20
CHAIN = {"num_steps": 10_000, "burn_in": 2000, "thin": 100}

DIGIT_STEPS = 300
DIGIT_PARTICLES = 10
HIDDEN = (50, 50)
INDEX_DIM = 8
PRIOR_SCALE = 10.0


def shortened(agent: AbstractAgent) -> Any:
    """Return an agent that trains briefly, with few particles."""
    known = {field.name for field in dataclasses.fields(agent)}  # pyright: ignore[reportArgumentType]
    changes = CHAIN if "burn_in" in known else {"num_steps": STEPS}
    if "num_particles" in known:
        changes = changes | {"num_particles": PARTICLES}
    return dataclasses.replace(agent, **changes)  # pyright: ignore[reportArgumentType]


def testbed_divergences(agents: Iterable[tuple[str, AbstractAgent]] = AGENTS.items()) -> dict[str, float]:
    """Return the divergences of agents from the truth, of one and of ten labels, over three problems."""
    problem_key, agent_key, test_key = named_keys(jr.key(0), "problems", "agents", "tests")
    problems = generate_problems(SETTINGS, key=problem_key)
    keys, test_keys = problem_keys(SETTINGS, key=agent_key), problem_keys(SETTINGS, key=test_key)
    found = {}
    for name, agent in agents:
        enns = train_agent(shortened(agent), problems, keys=keys)
        estimates = evaluate(enns, problems, num_batches=200, num_samples=200, keys=test_keys)
        for tau, kind in ((1, "marginal"), (10, "joint")):
            found[f"testbed: {name}, {kind} KL"] = float(jnp.mean(estimates[tau].values))
    return found


def _make_network(key: Any) -> MLP:
    return MLP(64, 10, HIDDEN, feature_layers=(0, -1), key=key)


def digit_losses(prior_scale: float = PRIOR_SCALE) -> dict[str, float]:
    """Return the losses of an epinet and of an ensemble on scikit-learn's digits, of one and of ten labels.

    Both are trained alike and are made of the same network, of which the ensemble has ten.
    """
    base_key, prior_key, epinet_key, fit_key, test_key = named_keys(jr.key(0), "base", "prior", "epinet", "fit", "test")
    (x, y), (test_x, test_y) = (
        (jnp.asarray(part.x).reshape(-1, 64), jnp.asarray(part.y)) for part in (digits("train"), digits("test"))
    )
    options: dict[str, Any] = {"num_steps": DIGIT_STEPS, "progress": False, "key": fit_key}
    loss = CrossEntropy(l2=1e-4)
    epinet: AbstractENN = attach(
        _make_network(base_key),
        out_size=10,
        index_dim=INDEX_DIM,
        hidden=(15, 15),
        prior_scale=0.0,
        priors=(mlp_prior(64, INDEX_DIM, 10, scale=prior_scale, key=prior_key),),
        freeze=False,
        key=epinet_key,
    )
    epinet = fit(epinet, (x, y), loss, **options).enn
    ensemble = fit_ensemble(_make_network, (x, y), loss, num_particles=DIGIT_PARTICLES, **options).model
    scores = {
        "epinet": log_losses(epinet, test_x, test_y, Draws.sample(epinet.index, 500, key=test_key)),
        "ensemble": log_losses(ensemble, test_x, test_y, Draws.all(ensemble.index)),
    }
    found = {}
    for name, losses in scores.items():
        found[f"digits: {name}, marginal loss"] = float(losses.marginal.mean)
        found[f"digits: {name}, joint loss"] = float(losses.joint.mean)
    return found
