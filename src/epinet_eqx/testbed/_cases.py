"""In how many ways draws fall on outcomes: the terms of an exact average (Appendix E)."""

import functools as ft
import itertools
import math

import numpy as np


@ft.cache
def outcome_cases(tau: int, num_outcomes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all ways in which tau draws fall on some outcomes, and the logarithm of the number of orders of each.

    Returns:
        Counts of shape (cases, outcomes) whose rows add up to tau, and their log multinomial coefficients.
    """
    places = tau + num_outcomes - 1
    bars = np.array([*itertools.combinations(range(places), num_outcomes - 1)], dtype=int).reshape(-1, num_outcomes - 1)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, places)))
    counts = np.diff(edges, axis=1) - 1
    log_factorials = np.array([math.lgamma(n + 1) for n in range(tau + 1)])
    return counts.astype(np.float32), log_factorials[tau] - log_factorials[counts].sum(axis=1)
