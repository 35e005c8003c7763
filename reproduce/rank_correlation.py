"""Rank correlations across agents within settings, with bootstrap errors over agents and problems."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Rows = Sequence[Mapping[str, Any]]
METRICS = ("marginal", "joint", "regret")
_NUM_RESAMPLES = 2000
_SEED = 203


def tables(rows: Rows) -> dict[tuple[int, float], np.ndarray]:
    """Return for each setting the metrics of each agent on each problem, of shape (agents, problems, metrics)."""
    labels = list(dict.fromkeys(row["label"] for row in rows))
    settings = sorted({(row["input_dim"], row["temperature"]) for row in rows})
    found = {}
    for setting in settings:
        own = [row for row in rows if (row["input_dim"], row["temperature"]) == setting]
        seeds = sorted({row["seed"] for row in own})
        table = np.full((len(labels), len(seeds), len(METRICS)), np.nan)
        for row in own:
            table[labels.index(row["label"]), seeds.index(row["seed"])] = [float(row[name]) for name in METRICS]
        # An agent that has failed is worse than all others.
        found[setting] = np.where(np.isnan(table), np.inf, table)
    return found


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks, equal values sharing the mean of theirs."""
    below = (values[None, :] < values[:, None]).sum(axis=1)
    equal = (values[None, :] == values[:, None]).sum(axis=1)
    return below + (equal - 1) / 2


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's correlation; NaN if one of them is constant."""
    a, b = (_ranks(values) - (len(values) - 1) / 2 for values in (first, second))
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else float("nan")


def _mean_correlations(own: Sequence[np.ndarray]) -> np.ndarray:
    """Return the correlations of marginal and joint divergence with regret, averaged over settings."""
    means = [table.mean(axis=1) for table in own]
    found = [[rank_correlation(table[:, number], table[:, 2]) for number in (0, 1)] for table in means]
    return np.array(found).mean(axis=0)


def correlations(rows: Rows) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return the correlations with regret across agents, and resamples of them.

    Within each setting agents are ranked by their mean over problems; settings are not a sample of anything. Agents are
    drawn with replacement, the same in all settings, and problems within each setting, the same for all agents.
    """
    own = list(tables(rows).values())
    num_agents = own[0].shape[0]
    rng = np.random.default_rng(_SEED)
    drawn = []
    for _ in range(_NUM_RESAMPLES if num_agents > 2 else 0):
        agents = rng.integers(num_agents, size=num_agents)
        problems = [rng.integers(table.shape[1], size=table.shape[1]) for table in own]
        drawn.append(
            _mean_correlations([table[agents][:, chosen] for table, chosen in zip(own, problems, strict=True)])
        )
    values = {name: float(value) for name, value in zip(METRICS, _mean_correlations(own), strict=False)}
    resamples = np.array(drawn).reshape(-1, 2)
    resamples = resamples[np.isfinite(resamples).all(axis=1)]
    return values, dict(zip(METRICS, resamples.T, strict=False))
