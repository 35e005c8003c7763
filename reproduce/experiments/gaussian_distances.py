"""Distances between Gaussians with one mean, in double precision, for many at once."""

import numpy as np
from jaxtyping import Float64


def kl_divergence(
    truth: Float64[np.ndarray, "*many n n"], prediction: Float64[np.ndarray, "*many n n"]
) -> Float64[np.ndarray, "*many"]:
    """Return the divergence of the Gaussian with the second covariance from the one with the first, in nats."""
    trace = np.trace(np.linalg.solve(prediction, truth), axis1=-2, axis2=-1)
    _, log_det = np.linalg.slogdet(prediction)
    _, true_log_det = np.linalg.slogdet(truth)
    return 0.5 * (trace - truth.shape[-1] + log_det - true_log_det)


def _root(matrices: Float64[np.ndarray, "*many n n"]) -> Float64[np.ndarray, "*many n n"]:
    """Return the roots of positive semidefinite matrices."""
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def wasserstein(
    truth: Float64[np.ndarray, "n n"], prediction: Float64[np.ndarray, "*many n n"]
) -> Float64[np.ndarray, "*many"]:
    """Return the 2-Wasserstein distance, which for covariances is the one of Bures."""
    root = _root(truth)
    cross = np.trace(_root(root @ prediction @ root), axis1=-2, axis2=-1)
    squared = np.trace(truth) + np.trace(prediction, axis1=-2, axis2=-1) - 2 * cross
    return np.sqrt(np.maximum(squared, 0.0))
