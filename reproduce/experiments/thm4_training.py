"""Theorem 4 by training: gradient descent and Algorithm 1 find the minimizer of Eq. (9) in closed form."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Float64, Key, PRNGKeyArray

from epinet_eqx import named_keys, trainable_mask
from epinet_eqx.epinet import Epinet
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.losses import Batch, SquaredLoss, mean_loss
from epinet_eqx.training import fit

from ..artifacts.thm4 import EpinetTraining
from ..record import Row
from .gaussian_distances import kl_divergence
from .linear_gaussian import (
    Problem,
    as_rows,
    directions,
    function_covariance,
    make_epinet,
    make_loss,
    minimizer,
    parameters,
    posterior,
    printed_minimizer,
    prior_matrix,
    with_parameters,
)
from .thm4_convergence import label_covariance, relative_error

Rows = Float64[np.ndarray, "*seeds rows in"]


def sigma_points(index_dim: int) -> Float[Array, "samples index"]:
    """Return indices with the mean and the covariance of a standard normal one: exact for a loss quadratic in `z`."""
    points = jnp.sqrt(float(index_dim)) * jnp.eye(index_dim)
    return jnp.concatenate([points, -points])


@eqx.filter_jit
def _make(
    loss_keys: Key[Array, " seeds"], enn_keys: Key[Array, " seeds"], problem: Problem, index_dim: int
) -> tuple[Epinet, SquaredLoss, Float[Array, "seeds batch index"]]:
    """Return stacked epinets with random parameters, a loss for each, and the vectors `c_i` of the losses."""

    def make(keys: tuple[PRNGKeyArray, PRNGKeyArray]) -> tuple[Epinet, SquaredLoss, Array]:
        loss_key, enn_key = keys
        loss = make_loss(problem, key=loss_key)
        enn = make_epinet(problem.x.shape[1], index_dim, prior_scale=problem.prior_scale, key=enn_key)
        return enn, loss, directions(loss, GaussianIndex(index_dim), len(problem.y))

    # Here and below a loop and not a `vmap`: random numbers for many keys at once take XLA seconds to compile.
    return jax.lax.map(make, (loss_keys, enn_keys))


class Trial(NamedTuple):
    """Stacked epinets with random parameters, a loss for each, and what both formulas say of their minimizers."""

    enns: Epinet
    losses: SquaredLoss
    p_0: Float64[np.ndarray, "seeds index in"]
    formulas: dict[str, Rows]


def make_trial(problem: Problem, index_dim: int, num_seeds: int, *, key: PRNGKeyArray) -> Trial:
    """Draw epinets and losses."""
    loss_key, enn_key = named_keys(key, "loss", "enn")
    enns, losses, c = _make(jr.split(loss_key, num_seeds), jr.split(enn_key, num_seeds), problem, index_dim)
    p_0 = np.asarray(prior_matrix(enns), np.float64)
    arguments = (problem, np.asarray(c, np.float64), p_0)
    formulas = {
        "closed form": as_rows(*minimizer(*arguments)),
        "printed formula": as_rows(*printed_minimizer(*arguments)),
    }
    return Trial(enns, losses, p_0, formulas)


def _expected_loss(enn: Epinet, loss: SquaredLoss, batch: Batch) -> Float[Array, ""]:
    """Return the mean of the loss over the batch and, exactly, over all indices."""
    return mean_loss(loss, enn, sigma_points(enn.index.size), batch)


@eqx.filter_jit
def _expected_losses(
    enns: Epinet, losses: SquaredLoss, batch: Batch, parameters: Float[Array, "seeds rows in"]
) -> Float[Array, " seeds"]:
    """Return the expected losses of stacked epinets at these parameters."""

    def one(seed: tuple[Epinet, SquaredLoss, Float[Array, "rows in"]]) -> Float[Array, ""]:
        enn, loss, rows = seed
        return _expected_loss(with_parameters(enn, rows), loss, batch)

    return jax.lax.map(one, (enns, losses, parameters))


@eqx.filter_jit
def descend(
    enns: Epinet, losses: SquaredLoss, batch: Batch, optimizer: optax.GradientTransformation, num_steps: int
) -> Epinet:
    """Return stacked epinets after gradient descent on their expected losses."""

    def one(seed: tuple[Epinet, SquaredLoss]) -> Epinet:
        enn, loss = seed
        params, rest = eqx.partition(enn, trainable_mask(enn))

        def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
            params, state = carry
            grads = eqx.filter_grad(lambda params: _expected_loss(eqx.combine(params, rest), loss, batch))(params)
            updates, state = optimizer.update(grads, state, params)
            return (eqx.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), length=num_steps)
        return eqx.combine(params, rest)

    return jax.lax.map(one, (enns, losses))


def accelerated_descent(problem: Problem) -> optax.GradientTransformation:
    """Return Nesterov's method with the best rates for the expected loss, which is a quadratic function."""
    curvature = np.linalg.eigvalsh(2 * problem.x.T @ problem.x / len(problem.y)) + 2 * problem.l2
    root = float(np.sqrt(curvature[-1] / curvature[0]))
    return optax.sgd(float(1 / curvature[-1]), momentum=(root - 1) / (root + 1), nesterov=True)


def _distance(found: Rows, wanted: Rows) -> Float64[np.ndarray, "*seeds"]:
    """Return the distances of parameters from the wanted ones, relative to their norms."""
    return np.linalg.norm(found - wanted, axis=(-2, -1)) / np.linalg.norm(wanted, axis=(-2, -1))


def minimize(config: EpinetTraining, problem: Problem, batch: Batch, *, key: PRNGKeyArray) -> list[Row]:
    """Return how far gradient descent and both formulas are from the minimum, at several dimensions of the index."""
    mean, covariance = posterior(problem)
    optimizer = accelerated_descent(problem)
    rows: list[Row] = []
    for index_dim in config.index_dims:
        trial = make_trial(problem, index_dim, config.num_seeds, key=jr.fold_in(key, index_dim))
        descended = descend(trial.enns, trial.losses, batch, optimizer, config.descent_steps)
        found = {"start": parameters(trial.enns), **trial.formulas, "gradient descent": parameters(descended)}
        losses = {
            method: np.asarray(_expected_losses(trial.enns, trial.losses, batch, jnp.asarray(solution, dtype=float)))
            for method, solution in found.items()
        }
        for method, solution in found.items():
            spread = relative_error(function_covariance(problem, solution[:, 1:], trial.p_0), covariance)
            rows.append(
                {
                    "metric": "minimizer",
                    "method": method,
                    "index_dim": index_dim,
                    "value": np.max(_distance(solution, found["closed form"])).item(),
                    "mean_error": np.max(np.linalg.norm(solution[:, 0] - mean, axis=-1)).item() / np.linalg.norm(mean),
                    "covariance_error": np.sqrt(np.mean(spread**2)).item(),
                    "excess_loss": np.max(losses[method] / losses["closed form"] - 1).item(),
                    "num_seeds": config.num_seeds,
                }
            )
    return rows


def _joint_kl(problem: Problem, inputs: np.ndarray, found: Rows, p_0: np.ndarray) -> Float64[np.ndarray, "*seeds"]:
    """Return how far the joint predictions of epinets are from those of the posterior, means included."""
    mean, covariance = posterior(problem)
    truth = label_covariance(inputs, covariance, problem.noise_scale)
    prediction = label_covariance(inputs, function_covariance(problem, found[..., 1:, :], p_0), problem.noise_scale)
    offset = np.einsum("bti,...i->...bt", inputs, found[..., 0, :] - mean)
    shift = 0.5 * np.sum(offset * np.linalg.solve(prediction, offset[..., None])[..., 0], axis=-1)
    return np.mean(kl_divergence(np.broadcast_to(truth, prediction.shape), prediction) + shift, axis=-1)


def _fit(
    config: EpinetTraining,
    trial: Trial,
    seed: int,
    batch: Batch,
    optimizer: optax.GradientTransformation,
    num_steps: int,
    *,
    key: PRNGKeyArray,
) -> Rows:
    """Return the parameters of one epinet after Algorithm 1."""
    enn, loss = jax.tree.map(lambda leaf: leaf[seed], (trial.enns, trial.losses))
    trained = fit(
        enn,
        batch,
        loss,
        num_steps=num_steps,
        batch_size=config.batch_size,
        optimizer=optimizer,
        num_index_samples=config.num_index_samples,
        progress=False,
        key=jr.fold_in(key, seed),
    ).enn
    assert isinstance(trained, Epinet)
    return parameters(trained)


def train(
    config: EpinetTraining, problem: Problem, batch: Batch, inputs: np.ndarray, *, key: PRNGKeyArray
) -> list[Row]:
    """Return how far Algorithm 1 ends from the minimum, over many epinets, and all parameters of the first of them."""
    trial_key, train_key = named_keys(key, "trial", "train")
    trial = make_trial(problem, config.index_dim, config.num_seeds, key=trial_key)
    wanted = trial.formulas
    best_kl = _joint_kl(problem, inputs, wanted["closed form"], trial.p_0)
    rows: list[Row] = []
    found = parameters(trial.enns)
    seeds = range(config.num_seeds)
    for num_steps in config.num_steps:
        optimizer = optax.adam(optax.cosine_decay_schedule(config.learning_rate, num_steps))
        steps_key = jr.fold_in(train_key, num_steps)
        found = np.stack([_fit(config, trial, seed, batch, optimizer, num_steps, key=steps_key) for seed in seeds])
        measured = {
            "distance to closed form": _distance(found, wanted["closed form"]),
            "distance to printed formula": _distance(found, wanted["printed formula"]),
            "joint kl": _joint_kl(problem, inputs, found, trial.p_0),
            "joint kl above closed form": _joint_kl(problem, inputs, found, trial.p_0) - best_kl,
        }
        for metric, values in measured.items():
            error = np.std(values, ddof=1) / np.sqrt(len(values))
            rows.append(
                {"metric": f"algorithm 1, {metric}", "index_dim": config.index_dim, "num_steps": num_steps}
                | {"value": np.mean(values).item(), "standard_error": error.item(), "num_seeds": config.num_seeds}
            )
    columns = {name.replace(" ", "_"): values[0] for name, values in wanted.items()} | {"algorithm_1": found[0]}
    return rows + _entries(columns)


def _entries(columns: dict[str, Rows]) -> list[Row]:
    """Return each parameter as each method has it."""
    height, width = next(iter(columns.values())).shape
    return [
        {"metric": "parameter", "parameter": f"zeta {i}" if row == 0 else f"eta {row - 1} {i}"}
        | {method: values[row, i].item() for method, values in columns.items()}
        for row in range(height)
        for i in range(width)
    ]


def training(config: EpinetTraining, problem: Problem, inputs: np.ndarray, *, key: PRNGKeyArray) -> list[Row]:
    """Return what training finds."""
    descent_key, fit_key = named_keys(key, "descent", "fit")
    batch = Batch.of(jnp.asarray(problem.x, dtype=float), jnp.asarray(problem.y, dtype=float))
    return [
        *minimize(config, problem, batch, key=descent_key),
        *train(config, problem, batch, inputs, key=fit_key),
    ]
