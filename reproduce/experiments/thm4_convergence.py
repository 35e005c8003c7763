"""Theorem 4 in closed form: how far the minimizer of Eq. (9) is from the posterior, by dimension of the index."""

from collections.abc import Iterator

import jax.random as jr
import numpy as np
from jaxtyping import Float64, PRNGKeyArray

from ..artifacts.thm4 import EpinetOnData
from ..record import Row
from .gaussian_distances import kl_divergence, wasserstein
from .generators import numpy_generator
from .linear_gaussian import (
    Problem,
    expected_covariance_error,
    function_covariance,
    minimizer,
    posterior,
    printed_minimizer,
)

# So many random numbers at a time stay within some tens of megabytes.
_CHUNK_NUMBERS = 2_000_000


def label_covariance(
    inputs: Float64[np.ndarray, "batches tau in"], covariance: Float64[np.ndarray, "*seeds in in"], noise_scale: float
) -> Float64[np.ndarray, "*seeds batches tau tau"]:
    """Return the covariance of noisy labels at each batch of inputs."""
    function = inputs @ covariance[..., None, :, :] @ np.swapaxes(inputs, -1, -2)
    return function + noise_scale**2 * np.eye(inputs.shape[1])


def _unit_vectors(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw vectors uniformly from the unit sphere; the last axis is theirs."""
    vectors = generator.standard_normal(shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _random_parts(
    problem: Problem, index_dim: int, num_seeds: int, *, key: PRNGKeyArray
) -> Iterator[tuple[Float64[np.ndarray, "seeds batch index"], Float64[np.ndarray, "seeds index in"]]]:
    """Yield the vectors `c_i` and the matrices `P_0` of many losses and epinets, a chunk of them at a time."""
    num_data, in_dim = problem.x.shape
    generator = numpy_generator(key)
    chunk = max(1, _CHUNK_NUMBERS // (index_dim * (num_data + in_dim)))
    for start in range(0, num_seeds, chunk):
        count = min(chunk, num_seeds - start)
        c = _unit_vectors(generator, count, num_data, index_dim)
        yield c, np.swapaxes(_unit_vectors(generator, count, in_dim, index_dim), -1, -2)


def relative_error(covariances: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the Frobenius distances of covariances to the true one, relative to its norm."""
    return np.linalg.norm(covariances - truth, axis=(-2, -1)) / np.linalg.norm(truth)


def _distances(problem: Problem, c: np.ndarray, p_0: np.ndarray, inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Return the distances of many epinets to the posterior."""
    mean, truth = posterior(problem)
    zeta, eta = minimizer(problem, c, p_0)
    _, printed_eta = printed_minimizer(problem, c, p_0)
    covariance, printed = (function_covariance(problem, found, p_0) for found in (eta, printed_eta))
    label_truth = label_covariance(inputs, truth, problem.noise_scale)
    labels = label_covariance(inputs, covariance, problem.noise_scale)
    variances = [np.diagonal(matrix, axis1=-2, axis2=-1)[..., None, None] for matrix in (label_truth, labels)]
    distances = {
        "mean error": np.full(len(eta), np.linalg.norm(zeta - mean) / np.linalg.norm(mean)),
        "covariance error": relative_error(covariance, truth),
        "covariance error, printed formula": relative_error(printed, truth),
        "wasserstein": wasserstein(truth, covariance) / np.sqrt(np.trace(truth)),
        "joint kl": np.mean(kl_divergence(label_truth, labels), axis=-1),
        "marginal kl": np.mean(kl_divergence(*np.broadcast_arrays(*variances)), axis=(-2, -1)),
    }
    if eta.shape[-2] >= eta.shape[-1]:  # With fewer index dimensions than inputs the epinet's Gaussian is degenerate.
        distances["parameter kl"] = kl_divergence(np.broadcast_to(truth, covariance.shape), covariance)
    return distances


def _summary(values: np.ndarray, *, root_mean_square: bool) -> Row:
    """Return the mean, or the root of the mean square, and its standard error."""
    powers = values**2 if root_mean_square else values
    mean, error = np.mean(powers), np.std(powers, ddof=1) / np.sqrt(len(powers))
    if root_mean_square:
        root = np.sqrt(mean)
        mean, error = root, error / (2 * root) if root > 0 else 0.0
    return {"value": float(mean), "standard_error": float(error), "num_seeds": len(values)}


def convergence(config: EpinetOnData, problem: Problem, inputs: np.ndarray, *, key: PRNGKeyArray) -> list[Row]:
    """Return the distances of minimizers to the posterior at each dimension of the index."""
    label_truth = label_covariance(inputs, posterior(problem)[1], problem.noise_scale)
    product = label_truth * np.eye(config.tau)
    rows: list[Row] = [
        {"metric": "joint kl of exact marginals", "value": np.mean(kl_divergence(label_truth, product)).item()}
    ]
    for index_dim in config.index_dims:
        chunks = [
            _distances(problem, c, p_0, inputs)
            for c, p_0 in _random_parts(problem, index_dim, config.num_seeds, key=jr.fold_in(key, index_dim))
        ]
        expected = expected_covariance_error(problem) / np.sqrt(index_dim)
        rows.append({"index_dim": index_dim, "metric": "covariance error, expected", "value": float(expected)})
        for metric in chunks[0]:
            values = np.concatenate([chunk[metric] for chunk in chunks])
            summary = _summary(values, root_mean_square=metric.startswith("covariance error"))
            rows.append({"index_dim": index_dim, "metric": metric, **summary})
    return rows
