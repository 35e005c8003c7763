"""Tests whether two samples of vectors come from one distribution."""

from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy import stats

# Ties between samples of a finite distribution are broken by noise this large, in standard deviations: far above the
# rounding by which single and double precision differ, far below what a test could tell apart.
_JITTER = 0.01


def _standardize(
    first: Float64[np.ndarray, "samples features"], second: Float64[np.ndarray, "samples features"]
) -> Float64[np.ndarray, "both features"]:
    """Return both samples, one after the other, with mean zero and variance one in each feature."""
    pooled = np.concatenate([first, second])
    deviation = np.std(pooled, axis=0)
    return (pooled - np.mean(pooled, axis=0)) / np.where(deviation > 0, deviation, 1.0)


def energy_test(
    first: Float64[np.ndarray, "samples features"],
    second: Float64[np.ndarray, "samples features"],
    *,
    num_permutations: int,
    generator: np.random.Generator,
) -> float:
    r"""Return the p-value of the permutation test by energy distance, $2 E|X - Y| - E|X - X'| - E|Y - Y'|$.

    It is zero for equal distributions only. With signs $s$ that tell the samples apart it is $-s^\top D s / n^2$ for
    the matrix $D$ of distances, so all permutations are one matrix product. The level of the test is exact, whatever
    the distributions.
    """
    pooled = _standardize(first, second)
    squares = np.sum(pooled**2, axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * pooled @ pooled.T, 0.0))
    signs = np.repeat([1.0, -1.0], [len(first), len(second)])
    permuted = generator.permuted(np.tile(signs, (num_permutations, 1)), axis=1)
    statistics = -np.sum((permuted @ distances) * permuted, axis=1)
    return (1 + np.sum(statistics >= -signs @ distances @ signs).item()) / (num_permutations + 1)


def projection_test(
    first: Float64[np.ndarray, "samples features"],
    second: Float64[np.ndarray, "samples features"],
    *,
    num_projections: int,
    generator: np.random.Generator,
) -> float:
    """Return the smallest p-value of Kolmogorov-Smirnov tests along random directions, corrected for their number."""
    pooled = _standardize(first, second)
    directions = generator.standard_normal((pooled.shape[1], num_projections))
    projected = pooled @ (directions / np.linalg.norm(directions, axis=0))
    projected = projected + _JITTER * generator.standard_normal(projected.shape)
    parts = np.split(projected, [len(first)])
    results: list[Any] = [stats.ks_2samp(a, b, method="asymp") for a, b in zip(parts[0].T, parts[1].T, strict=True)]
    return min(1.0, num_projections * float(min(result.pvalue for result in results)))


def flip_test(
    differences: Float64[np.ndarray, "samples cells"],
    observed: Float64[np.ndarray, " cells"],
    *,
    num_blocks: int = 500,
    num_flips: int = 19_999,
    generator: np.random.Generator,
) -> float:
    """Return the p-value of the hypothesis that all mean differences of two independent samples are zero.

    If both samples have one distribution, the difference of a pair has the sign of its opposite with equal probability,
    and so has that of a block of pairs: the level of the test by random signs is exact, however heavy the tails. The
    largest mean difference in standard deviations is the statistic, so that one p-value covers all cells.

    Args:
        differences: differences of pairs.
        observed: their mean, computed by what is tested.
        num_blocks: pairs are added up in so many blocks, as far as there are pairs for them.
        num_flips: number of random signs of all blocks.
        generator: draws the signs.
    """
    count = len(differences)
    blocks = np.stack([np.sum(block, axis=0) for block in np.array_split(differences, min(num_blocks, count))])
    scale = np.sqrt(np.sum(blocks**2, axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    signs = 2.0 * generator.integers(0, 2, size=(num_flips, len(blocks)), dtype=np.int8) - 1.0
    flipped = np.max(np.abs(signs @ (blocks / scale)), axis=1)
    # Rounding of the table must not decide between equal statistics.
    reached = np.max(np.abs(count * observed) / scale) * (1 - 1e-6)
    return (1 + np.sum(flipped >= reached).item()) / (num_flips + 1)


def combine(p_values: list[float]) -> float:
    """Return the p-value of independent tests of one hypothesis together, by Fisher's method."""
    result: Any = stats.combine_pvalues(p_values, method="fisher")
    return float(result.pvalue)
