"""A rule for the aleatoric share on the testbed: fitted on problems of its own, applied to those that are judged."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from .aggregate import read_rows
from .paths import REFERENCE
from .stats import PROBLEMS, Measurement, Rows, where

Rule = tuple[float, float, float]
"""Logit of alpha: a constant, and slopes in the logarithms of the temperature and of the data ratio."""

_FIGURE_5 = ("epinet", "ensemble+-num_particles=100", "hypermodel", "bbb", "dropout")
_STEPS = (0.8, 0.4, 0.2, 0.1, 0.05, 0.025)


def _curves(rows: Rows, label: str, *, is_judged: bool) -> list[dict[str, Any]]:
    """Return what is known of each problem, with its joint divergence over alpha."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        if row["label"] == label and bool(row["is_judged"]) == is_judged:
            own = found.setdefault(row["problem"], {**row, "curve": []})
            own["curve"].append((float(row["alpha"]), float(row["joint"]), float(row["joint_error"])))
    return [{**own, "curve": sorted(own["curve"])} for own in found.values()]


def _at(curve: Sequence[tuple[float, float, float]], alpha: float) -> tuple[float, float]:
    """Return divergence and standard error at an alpha, linear between those that were computed.

    The divergence is convex in alpha as far as we have seen, so this is no smaller than what it is there.
    """
    alpha = min(max(alpha, curve[0][0]), curve[-1][0])
    for (low, value, error), (high, next_value, next_error) in itertools.pairwise(curve):
        if alpha <= high:
            share = (alpha - low) / (high - low)
            return value + share * (next_value - value), error + share * (next_error - error)
    return curve[-1][1:]


def alpha_of(rule: Rule, temperature: float, data_ratio: float) -> float:
    """Return alpha by a rule."""
    return 1 / (1 + math.exp(-(rule[0] + rule[1] * math.log(temperature) + rule[2] * math.log(data_ratio))))


def fit(rows: Rows, label: str) -> Rule:
    """Return the rule with the smallest mean divergence on the problems that are not judged."""
    curves = _curves(rows, label, is_judged=False)

    def cost(rule: Rule) -> float:
        return sum(_at(own["curve"], alpha_of(rule, own["temperature"], own["data_ratio"]))[0] for own in curves)

    best: Rule = (0.0, 0.0, 0.0)
    least = cost(best)
    for step in _STEPS:
        improved = True
        while improved:
            improved = False
            for place in range(3):
                for change in (-step, step):
                    own = list(best)
                    own[place] += change
                    tried: Rule = (own[0], own[1], own[2])
                    value = cost(tried)
                    if value < least - 1e-9:
                        best, least, improved = tried, value, True
    return best


def judge(rows: Rows, label: str, rule: Rule) -> list[dict[str, Any]]:
    """Return one row per judged problem, with the divergence of the head at the rule's alpha."""
    found = []
    for own in _curves(rows, label, is_judged=True):
        alpha = alpha_of(rule, own["temperature"], own["data_ratio"])
        value, error = _at(own["curve"], alpha)
        found.append({**own, "label": f"{label} + head", "alpha": alpha, "joint": value, "joint_error": error})
    return found


def scores(rows: Rows) -> list[dict[str, Any]]:
    """Return one row per agent and judged problem: as it is, and through the head at the alpha of its own rule."""
    found: list[dict[str, Any]] = []
    for label in dict.fromkeys(row["label"] for row in rows):
        judged = judge(rows, label, fit(rows, label))
        found += judged
        found += [{**own, "label": label, "joint": float(own["own_joint"])} for own in judged]
    return found


def accepted_agents(rows: Rows) -> list[dict[str, Any]]:
    """Return the accepted rows of Figure 5's agents at tier `paper`, on the problems that are judged.

    Problems and test inputs are the same there: differences are paired. Of ensembles, only the largest; not `sgmcmc`,
    whose chains differ between problems.
    """
    judged = {row["problem"] for row in rows if row["is_judged"]}
    path = REFERENCE / "paper" / "fig05.csv"
    found = [dict(row) for row in read_rows(path)] if path.exists() else []
    return [row for row in found if row["label"] in _FIGURE_5 and row["problem"] in judged]


def minus(rows: Rows, first: str, second: str) -> Measurement:
    """Return the paired difference of the joint divergences of two agents, by their labels."""
    own, others = where(rows, label=first), where(rows, label=second)
    return PROBLEMS.difference(own, others, "joint", "joint") if own and others else Measurement(math.nan)
