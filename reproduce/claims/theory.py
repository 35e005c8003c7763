"""Claims of the theory artifacts."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..closed_forms import guess_reward, largest_reward, least_kl
from ..record import Row
from .ledger import Claim, Measurement
from .rules import AtLeast, AtMost, Equals
from .select import Measure, where

_ROUNDING = 1e-5


def _largest(values: Iterable[float]) -> Measurement:
    """Return the largest of exact values."""
    return Measurement(value=max(values))


def _farthest(rows: Iterable[dict[str, Any]]) -> Measurement:
    """Return the largest difference between Monte Carlo and exact, with its standard error."""
    worst = max(rows, key=lambda row: abs(row["monte_carlo"] - row["exact"]))
    return Measurement(value=worst["monte_carlo"] - worst["exact"], standard_error=worst["standard_error"])


def _marginals(rows: Sequence[Row]) -> Measurement:
    return _largest(abs(row["exact"] - 0.5) for row in where(rows, table="marginal"))


def _conditionals(enn: str, expected: Callable[[dict[str, Any]], float]) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        chosen = where(rows, table="conditional", enn=enn)
        return _largest(abs(row["exact"] - expected(row)) for row in chosen)

    return measure


def _curve_range(rows: Sequence[Row]) -> Measurement:
    values = [row["probability"] for row in where(rows, kind="curve", enn="ambiguous")]
    return Measurement(value=max(values) - min(values))


def _diagonal(rows: Sequence[Row]) -> Measurement:
    chosen = where(rows, kind="integral", enn="insufficient")
    return _largest(abs(row["probability"] - 0.5 * (row["y1"] == row["y2"])) for row in chosen)


def _check(name: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        return _largest(row["value"] for row in where(rows, kind="check") if row["part"].startswith(name))

    return measure


def _prior_trainable(rows: Sequence[Row]) -> Measurement:
    return _largest(row["trainable"] for row in where(rows, kind="part", part="prior"))


def _by_tau(rows: Sequence[Row], agent: str, reward: str) -> dict[int, dict[str, Any]]:
    return {row["tau"]: row for row in where(rows, agent=agent, reward=reward)}


def _optimum(rows: Sequence[Row]) -> Measurement:
    return Measurement(value=min(row["exact"] for row in _by_tau(rows, "joint", "scaled").values()))


def _odd_optimum(rows: Sequence[Row]) -> Measurement:
    earned = _by_tau(rows, "joint", "paper")
    return _largest(abs(row["exact"] - largest_reward(tau)) for tau, row in earned.items())


def _no_better(rows: Sequence[Row]) -> Measurement:
    random = _by_tau(rows, "random", "scaled")
    return _largest(row["exact"] - random[tau]["exact"] for tau, row in _by_tau(rows, "marginal", "scaled").items())


def _guess(rows: Sequence[Row]) -> Measurement:
    earned = _by_tau(rows, "marginal", "paper")
    return _largest(abs(row["exact"] - guess_reward(tau)) for tau, row in earned.items())


def _below_one(rows: Sequence[Row]) -> Measurement:
    return _largest(row["exact"] for row in where(rows, agent="random", reward="scaled"))


def _mean_gap(better: str, worse: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        others = _by_tau(rows, worse, "scaled")
        pairs = [(row, others[tau]) for tau, row in _by_tau(rows, better, "scaled").items()]
        gaps = [row["monte_carlo"] - other["monte_carlo"] for row, other in pairs]
        variance = sum(row["standard_error"] ** 2 + other["standard_error"] ** 2 for row, other in pairs)
        return Measurement(value=sum(gaps) / len(gaps), standard_error=math.sqrt(variance) / len(gaps))

    return measure


def _excess(rows: Sequence[Row]) -> Measurement:
    return _largest(row["largest_excess"] for row in where(rows, kind="summary"))


def _points(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [dict(row) for row in rows if row["kind"] != "summary"]


def _slack(rows: Sequence[Row]) -> Measurement:
    return Measurement(value=min(row["kl"] - least_kl(row["shortfall"]) for row in _points(rows)))


def _share(rows: Sequence[Row]) -> Measurement:
    found = where(rows, kind="end of search")
    return _largest(row["shortfall"] / math.sqrt(2 * row["kl"]) for row in found)


def _search_excess(rows: Sequence[Row]) -> Measurement:
    found = [row for row in _points(rows) if row["kind"] != "problem"]
    return _largest(row["shortfall"] - math.sqrt(2 * row["kl"]) for row in found)


THEORY: tuple[Claim, ...] = (
    Claim(
        id="fig01-marginals",
        statement="Both joint predictions agree with the uniform marginal prediction.",
        location="Section 1, Figure 1",
        quantity="largest distance of a marginal probability from 1/2",
        measure=_marginals,
        rule=Equals(target=0.0, tolerance=_ROUNDING),
    ),
    Claim(
        id="fig01-ambiguous",
        statement="With inevitable uncertainty the first label does not alter the prediction of the second.",
        location="Section 1, Figure 1",
        quantity="largest distance of P(y2 | y1) from 1/2",
        measure=_conditionals("ambiguous", lambda row: 0.5),
        rule=Equals(target=0.0, tolerance=_ROUNDING),
    ),
    Claim(
        id="fig01-insufficient",
        statement="With insufficient data the first label gives all probability to the same second label.",
        location="Section 1, Figure 1",
        quantity="largest distance of P(y2 | y1) from one for equal labels, zero for others",
        measure=_conditionals("insufficient", lambda row: float(row["y1"] == row["y2"])),
        rule=Equals(target=0.0, tolerance=_ROUNDING),
    ),
    Claim(
        id="fig01-monte-carlo",
        statement="The joint prediction averaged over samples of a Gaussian index is the exact one.",
        location="Eq. (2)",
        quantity="largest difference of a Monte Carlo probability from the exact one",
        measure=lambda rows: _farthest(where(rows, table="joint")),
        rule=Equals(target=0.0, tolerance=0.01),
    ),
    Claim(
        id="fig03-ambiguous",
        statement="The marginal prediction of the first ENN does not vary with the index.",
        location="Section 3, Figure 3a",
        quantity="range of P(y = R | z) over the index",
        measure=_curve_range,
        rule=Equals(target=0.0, tolerance=_ROUNDING),
    ),
    Claim(
        id="fig03-insufficient",
        statement="Integrated over the index the table of the second ENN is diagonal, with 0.5 in each diagonal entry.",
        location="Section 3, Figure 3b",
        quantity="largest distance of a cell from that",
        measure=_diagonal,
        rule=Equals(target=0.0, tolerance=_ROUNDING),
    ),
    Claim(
        id="fig04-sum",
        statement="The ENN is the sum of the base network, the learnable epinet and the prior networks.",
        location="Eq. (4) and (5)",
        quantity="largest difference of an output from the sum of the parts",
        measure=_check("output minus"),
        rule=Equals(target=0.0, tolerance=_ROUNDING),
    ),
    Claim(
        id="fig04-stop-gradient",
        statement="The features are stopped: no gradient of the epinet reaches the base network.",
        location="Eq. (4)",
        quantity="largest gradient of what the epinet adds with respect to the base",
        measure=_check("gradient of the epinet to the base"),
        rule=Equals(target=0.0, tolerance=0.0),
    ),
    Claim(
        id="fig04-prior",
        statement="The prior network has no trainable parameters.",
        location="Section 4.1",
        quantity="trainable parameters of the prior networks",
        measure=_prior_trainable,
        rule=Equals(target=0.0, tolerance=0.0),
    ),
    Claim(
        id="fig04-one-pass",
        statement="Many samples of the ENN need one forward pass of the base network.",
        location="Section 4.1",
        quantity="passes of the base network while the samples of one input are drawn",
        measure=_check("passes of the base"),
        rule=Equals(target=1.0, tolerance=0.0),
    ),
    Claim(
        id="thm1-optimum",
        statement="The best action earns 1, for every tau; for odd tau with the reward over its largest value.",
        location="Appendix B, Theorem 1",
        quantity="smallest optimum over tau",
        measure=_optimum,
        rule=Equals(target=1.0, tolerance=_ROUNDING),
    ),
    Claim(
        id="thm1-odd",
        statement="With the reward as the proof has it the best action earns 1 for even tau, 1 - 1/tau^2 for odd.",
        location="Appendix B, proof of Theorem 1 (ours for odd tau)",
        quantity="largest distance of the optimum from that",
        measure=_odd_optimum,
        rule=Equals(target=0.0, tolerance=_ROUNDING),
    ),
    Claim(
        id="thm1-no-better",
        statement="The agent with exact marginals earns no more than a random guess.",
        location="Appendix B, Theorem 1",
        quantity="largest advantage over a random guess",
        measure=_no_better,
        rule=AtMost(bound=0.0, tolerance=_ROUNDING),
    ),
    Claim(
        id="thm1-closed-form",
        statement="The agent with exact marginals earns 1 - 1/tau under the reward of the proof.",
        location="Appendix B, proof of Theorem 1",
        quantity="largest distance from that over tau",
        measure=_guess,
        rule=Equals(target=0.0, tolerance=_ROUNDING),
    ),
    Claim(
        id="thm1-below-one",
        statement="A random guess earns less than 1.",
        location="Appendix B, Theorem 1",
        quantity="largest reward of a random guess over tau up to 10",
        measure=_below_one,
        rule=AtMost(bound=10 / 11, tolerance=_ROUNDING),
    ),
    Claim(
        id="thm1-monte-carlo-marginal",
        statement="Sampled labels do not help the agent with exact marginals beyond a random guess.",
        location="Appendix B, Theorem 1",
        quantity="Monte Carlo advantage over a random guess, mean over tau",
        measure=_mean_gap("marginal", "random"),
        rule=AtMost(bound=0.0, tolerance=0.01),
    ),
    Claim(
        id="thm1-monte-carlo-joint",
        statement="Sampled labels of the joint prediction are enough to earn more than exact marginals.",
        location="Appendix B, Theorem 1",
        quantity="Monte Carlo advantage over the agent with exact marginals, mean over tau",
        measure=_mean_gap("joint", "marginal"),
        rule=AtLeast(bound=0.05),
    ),
    Claim(
        id="thm2-bound",
        statement="The shortfall of every random decision problem is at most the square root of twice the divergence.",
        location="Appendix B, Theorem 2",
        quantity="largest shortfall minus bound",
        measure=_excess,
        rule=AtMost(bound=0.0, tolerance=1e-6),
    ),
    Claim(
        id="thm2-search",
        statement="Problems whose divergence a search made as small as it could stay within the bound.",
        location="Appendix B, Theorem 2",
        quantity="largest shortfall minus bound",
        measure=_search_excess,
        rule=AtMost(bound=0.0, tolerance=1e-6),
    ),
    Claim(
        id="thm2-sharp",
        statement="A shortfall s needs a divergence of ((1 + s) ln(1 + s) + (1 - s) ln(1 - s)) / 2 or more.",
        location="Ours, sharpens Theorem 2",
        quantity="smallest divergence beyond that",
        measure=_slack,
        rule=AtLeast(bound=0.0, tolerance=1e-6),
    ),
    Claim(
        id="thm2-tight",
        statement="The bound is tight: no smaller constant would do.",
        location="Ours, on Theorem 2",
        quantity="largest share of the bound that a search attained",
        measure=_share,
        rule=AtLeast(bound=0.99),
    ),
)
