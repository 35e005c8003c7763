"""Claims of the artifacts about decisions: what joint predictions are for (Section 2, Appendix B)."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..over_seeds import by_seed, mean_over
from ..rank_correlation import correlations
from ..record import Row
from .ledger import Claim, Measurement
from .rules import AtLeast, AtMost, Equals, Rule
from .select import Measure, where

_UNKNOWN = Measurement(value=math.nan)
_THESIS = "Section 2"
_BEYOND = "beyond the paper"
_BETTER, _MORE = AtMost(bound=0.0), AtLeast(bound=0.0)


def _paired(first: dict[Any, float], second: dict[Any, float]) -> Measurement:
    """Return the mean of differences, paired by what they are of; unknown without pairs."""
    differences = [first[name] - second[name] for name in sorted(first.keys() & second.keys())]
    value, error = mean_over(differences)
    return _UNKNOWN if math.isnan(value) else Measurement(value=value, standard_error=error)


def _largest(rows: Sequence[Row], agent: str) -> str:
    """Return the label of the largest variant of an agent; empty if there is none."""
    labels = {str(row["label"]) for row in rows if row["agent"] == agent}
    return max(labels, key=lambda label: int(label.rpartition("=")[2] or 0), default="")


def _regret(rows: Sequence[Row], bandit: str, label: str, rule: str, compute: str) -> dict[int, float]:
    """Return the regret of each run."""
    wanted = {"row": "run", "bandit": bandit, "label": label, "rule": rule, "compute": compute}
    return by_seed(rows, "regret", **wanted)


def _against(bandit: str, agent: str, compute: str = "equal") -> Measure:
    """Compare the regret of the epinet with that of the largest variant of an agent."""

    def measure(rows: Sequence[Row]) -> Measurement:
        label = agent if agent == "mlp" else _largest(rows, agent)
        own = _regret(rows, bandit, "epinet", "thompson", "equal")
        return _paired(own, _regret(rows, bandit, label, "thompson", compute))

    return measure


def _against_rule(rule: str) -> Measure:
    """Compare the regret of Thompson sampling with that of another rule, in the neural bandit."""

    def measure(rows: Sequence[Row]) -> Measurement:
        own = _regret(rows, "neural", "epinet", "thompson", "equal")
        return _paired(own, _regret(rows, "neural", "epinet", rule, "equal"))

    return measure


def _labels(rows: Sequence[Row], acquisition: str) -> dict[int, float]:
    """Return the labels that each run needs; one that never gets there counts with its budget."""
    own = where(rows, row="needed", acquisition=acquisition)
    return {row["seed"]: min(float(row["labels"]), float(row["budget"])) for row in own}


def _fewer(acquisition: str, other: str = "uniform") -> Measure:
    """Compare the labels that two rules of acquisition need; where no run gets there, nothing is told."""

    def measure(rows: Sequence[Row]) -> Measurement:
        own = [*where(rows, row="needed", acquisition=acquisition), *where(rows, row="needed", acquisition=other)]
        if all(float(row["labels"]) > float(row["budget"]) for row in own):
            return Measurement(value=math.nan)
        return _paired(_labels(rows, acquisition), _labels(rows, other))

    return measure


def _correlation(metric: str) -> Measure:
    """Return the rank correlation of a divergence with regret."""

    def measure(rows: Sequence[Row]) -> Measurement:
        values, resamples = correlations(rows)
        return Measurement(value=values[metric], standard_error=_spread(resamples[metric]))

    return measure


def _spread(resamples: np.ndarray) -> float:
    """Return the standard error from resamples; NaN if there are too few."""
    return float(resamples.std(ddof=1)) if len(resamples) > 100 else math.nan


def _joint_beyond_marginal(rows: Sequence[Row]) -> Measurement:
    values, resamples = correlations(rows)
    difference = resamples["joint"] - resamples["marginal"]
    return Measurement(value=values["joint"] - values["marginal"], standard_error=_spread(difference))


def _reward(rows: Sequence[Row], agent: str, way: str, copies: int) -> dict[Any, float]:
    """Return what the sets earn that an agent chooses in one way, by problem."""
    own = where(rows, agent=agent, copies=copies)
    return {(row["temperature"], row["seed"]): float(row[way]) for row in own}


def _most_copies(rows: Sequence[Row]) -> int:
    """Return the largest number of candidates that are alike."""
    return max(int(row["copies"]) for row in rows)


def _ways(agent: str, way: str, other: str) -> Measure:
    """Compare two ways to choose, where most candidates are alike."""

    def measure(rows: Sequence[Row]) -> Measurement:
        copies = _most_copies(rows)
        return _paired(_reward(rows, agent, way, copies), _reward(rows, agent, other, copies))

    return measure


def _gap_growth(rows: Sequence[Row]) -> Measurement:
    """Return how much more joint prediction earns with copies than without."""

    def gap(copies: int) -> dict[Any, float]:
        joint, marginal = (_reward(rows, "epinet", way, copies) for way in ("joint", "marginal"))
        return {name: joint[name] - marginal[name] for name in joint}

    return _paired(gap(_most_copies(rows)), gap(1))


def _sets_against(agent: str) -> Measure:
    """Compare what the epinet's sets earn with those of an agent, both by joint prediction."""

    def measure(rows: Sequence[Row]) -> Measurement:
        copies = _most_copies(rows)
        return _paired(_reward(rows, "epinet", "joint", copies), _reward(rows, agent, "joint", copies))

    return measure


def _worst_ratio(rows: Sequence[Row]) -> Measurement:
    return Measurement(value=min(float(row["ratio"]) for row in rows))


def _claim(name: str, statement: str, quantity: str, measure: Measure, rule: Rule, location: str = _BEYOND) -> Claim:
    """Return a claim, by default one beyond the paper."""
    return Claim(
        id=name,
        statement=statement,
        location=location,
        quantity=quantity,
        measure=measure,
        rule=rule,
    )


_PLACES = {"linear": "the linear bandit", "neural": "the neural bandit", "digits": "the bandit of digits"}
_NAMES = {
    "variance": "the variance of class probabilities",
    "entropy": "entropy",
    "margin": "the margin",
    "bald": "BALD",
    "batch-bald": "BatchBALD",
    "epig": "EPIG",
    "joint-loss": "the expected joint log-loss",
}

_BANDITS = (
    *(
        _claim(
            f"dec_bandits-{bandit}-mlp",
            f"In {words}, an epinet has less regret than a conventional network.",
            "regret of epinet minus mlp, both by Thompson sampling",
            _against(bandit, "mlp"),
            _BETTER,
            _THESIS,
        )
        for bandit, words in _PLACES.items()
    ),
    *(
        _claim(
            f"dec_bandits-{bandit}-ensemble",
            f"In {words}, an epinet has less regret than the largest ensemble.",
            "regret of epinet minus the largest ensemble, with as many updates",
            _against(bandit, "ensemble"),
            _BETTER,
            _THESIS,
        )
        for bandit, words in _PLACES.items()
    ),
    _claim(
        "dec_bandits-matched",
        "In the neural bandit, an epinet has less regret than the largest ensemble with the same operations.",
        "regret of epinet minus the largest ensemble, at matched compute",
        _against("neural", "ensemble", "matched"),
        _BETTER,
        _THESIS,
    ),
    _claim(
        "dec_bandits-ensemble-plus",
        "In the neural bandit, an epinet has less regret than an ensemble with prior functions.",
        "regret of epinet minus ensemble+, with as many updates",
        _against("neural", "ensemble+"),
        _BETTER,
    ),
    *(
        _claim(
            f"dec_bandits-{rule}",
            f"In the neural bandit, Thompson sampling has less regret than {words}.",
            f"regret of the epinet by Thompson sampling minus {rule}",
            _against_rule(rule),
            _BETTER,
        )
        for rule, words in (("greedy", "the greedy rule"), ("epsilon-greedy", "the epsilon-greedy rule"))
    ),
)

_FASHION = tuple(
    _claim(
        f"dec_fashion-{agent}",
        f"In the bandit of Fashion-MNIST, an epinet has less regret than {words}.",
        f"regret of epinet minus {words}, both by Thompson sampling, with as many updates",
        _against("fashion", agent),
        _BETTER,
        _THESIS,
    )
    for agent, words in (("mlp", "a conventional network"), ("ensemble", "the largest ensemble"))
)

_ACTIVE = (
    *(
        _claim(
            f"dec_active-{name}",
            f"Choosing labels by {words}, an epinet needs fewer of them than by uniform sampling.",
            f"labels up to the accuracy, {name} minus uniform; at most the budget",
            _fewer(name),
            _BETTER,
        )
        for name, words in _NAMES.items()
    ),
    *(
        _claim(
            f"rep_active-{name}",
            f"On features of real images, an epinet needs fewer labels chosen by {_NAMES[name]} than chosen uniformly.",
            f"labels up to the accuracy, {name} minus uniform; at most the budget",
            _fewer(name),
            _BETTER,
        )
        for name in ("variance", "bald", "epig", "margin")
    ),
    _claim(
        "dec_active-batch",
        "Choosing batches by BatchBALD, an epinet needs fewer labels than by BALD.",
        "labels up to the accuracy, batch-bald minus bald; at most the budget",
        _fewer("batch-bald", "bald"),
        _BETTER,
    ),
)

_THESIS_CLAIMS = (
    _claim(
        "dec_thesis-joint",
        "Across agents, a larger joint divergence goes with more regret.",
        "rank correlation of joint KL and regret, mean over settings",
        _correlation("joint"),
        _MORE,
        _THESIS,
    ),
    _claim(
        "dec_thesis-marginal",
        "Across agents, the marginal divergence says nothing about regret.",
        "rank correlation of marginal KL and regret, mean over settings",
        _correlation("marginal"),
        Equals(target=0.0, tolerance=0.3),
        _THESIS,
    ),
    _claim(
        "dec_thesis-beyond",
        "The joint divergence tells more about regret than the marginal one.",
        "rank correlation with regret, joint minus marginal",
        _joint_beyond_marginal,
        _MORE,
        _THESIS,
    ),
)

_SETS = (
    _claim(
        "dec_sets-joint",
        "A set that an epinet chooses by its joint prediction earns more than one chosen by its marginals.",
        "true reward, joint minus marginal, most candidates alike",
        _ways("epinet", "joint", "marginal"),
        _MORE,
        "Appendix B",
    ),
    _claim(
        "dec_sets-copies",
        "The gain of joint prediction is larger where candidates are alike.",
        "gain with copies minus gain without",
        _gap_growth,
        _MORE,
    ),
    _claim(
        "dec_sets-mlp",
        "For a conventional network joint predictions are no better than marginals.",
        "true reward of mlp, joint minus marginal",
        _ways("mlp", "joint", "marginal"),
        Equals(target=0.0, tolerance=0.02),
        "Section 2",
    ),
    _claim(
        "dec_sets-greedy",
        "The greedy set earns as much as the best of all sets under the joint prediction.",
        "true reward of epinet, greedy minus exact",
        _ways("epinet", "joint", "exact"),
        Equals(target=0.0, tolerance=0.01),
    ),
    _claim(
        "dec_sets-bound",
        "The greedy set never has less than 63 percent of the best predicted reward.",
        "smallest ratio of predicted rewards, greedy over exact",
        _worst_ratio,
        AtLeast(bound=1 - math.exp(-1)),
    ),
    _claim(
        "dec_sets-ensemble",
        "Sets that an epinet chooses earn more than those of an ensemble of ten.",
        "true reward by joint prediction, epinet minus ensemble",
        _sets_against("ensemble"),
        _MORE,
        "Section 2",
    ),
)

DECISIONS: tuple[Claim, ...] = (*_BANDITS, *_FASHION, *_ACTIVE, *_THESIS_CLAIMS, *_SETS)
"""The claims, in the order of the index."""
