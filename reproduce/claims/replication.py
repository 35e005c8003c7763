"""Claims of the replication on real CIFAR-10: the paper's, those of its public replication, and the bar set here."""

import math
from collections.abc import Sequence
from typing import Any

from ..over_bases import chosen, mean_of, shown
from ..record import Row
from .ledger import Claim, Measurement
from .rules import AtLeast, AtMost
from .select import Measure

_BELOW = AtMost(bound=0.0)
_ABOVE = AtLeast(bound=0.0)


def _measured(rows: Sequence[Any], metric: str) -> Measurement:
    """Return the mean over bases; what is not there decides nothing."""
    value, error = mean_of(rows, metric)
    return Measurement(value=value, standard_error=0.0 if math.isnan(value) else error)


def _first_depth(rows: Sequence[Row]) -> int:
    """Return the depth of the particles; 0 where there are none."""
    return min((int(row["depth"]) for row in rows if row.get("agent") in ("epinet", "ensemble")), default=0)


def _epinets(recipe: str, metric: str, **wanted: Any) -> Measure:
    """Return a metric of the epinets of a recipe on bases of the particles' depth."""

    def measure(rows: Sequence[Row]) -> Measurement:
        found = shown(rows, part="epinets", recipe=recipe, depth=_first_depth(rows), **wanted)
        return _measured(found, metric)

    return measure


def _parameters(rows: Sequence[Row]) -> Measurement:
    """Return the largest number of parameters of the cold epinet, in particles."""
    found = shown(rows, part="epinets", recipe="cold", depth=_first_depth(rows))
    ratios = [float(row["parameters"]) / float(row["particle_parameters"]) for row in found]
    return Measurement(value=max(ratios, default=math.nan))


def _minus(first: Sequence[Any], second: Sequence[Any], metric: str = "joint") -> Measurement:
    """Return a difference of means; as if independent, which the same test pairs make too careful."""
    (one, one_error), (two, two_error) = mean_of(first, metric), mean_of(second, metric)
    if math.isnan(one) or math.isnan(two):
        return Measurement(value=math.nan)
    return Measurement(value=one - two, standard_error=math.hypot(one_error, two_error))


def _against_size(size: int, *, tau: int, num_samples: int) -> Measure:
    """Compare the released epinet with ensembles of a size, at the public replication's tau and M, untuned."""

    def measure(rows: Sequence[Row]) -> Measurement:
        shared = {"depth": _first_depth(rows), "kind": "untuned", "tau": tau}
        own = chosen(rows, part="epinets", recipe="released", num_samples=num_samples, **shared)
        return _minus(own, chosen(rows, part="ensembles", size=size, **shared))

    return measure


def _more_indices(rows: Sequence[Row]) -> Measurement:
    """Return the change of the joint loss of the cold epinet from ten indices to a thousand."""
    shared = {"part": "epinets", "recipe": "cold", "depth": _first_depth(rows), "kind": "tuned", "tau": 10}
    return _minus(chosen(rows, num_samples=1000, **shared), chosen(rows, num_samples=10, **shared))


def _against_control(agent: str) -> Measure:
    """Compare the cold epinet with a control on the same bases."""

    def measure(rows: Sequence[Row]) -> Measurement:
        others = shown(rows, part="controls", agent=agent)
        bases = {row["network"] for row in others}
        own = [row for row in shown(rows, part="epinets", recipe="cold") if row["network"] in bases]
        return _minus(own, others)

    return measure


def _by_part(part: str, metric: str, first: str, second: str, *, other: str | None = None, **wanted: Any) -> Measure:
    """Compare two agents of a part; `other` is the second agent's metric if it is another one."""

    def measure(rows: Sequence[Row]) -> Measurement:
        own = mean_of(chosen(rows, part=part, agent=first, **wanted), metric)
        its = mean_of(chosen(rows, part=part, agent=second, **wanted), other or metric)
        if math.isnan(own[0]) or math.isnan(its[0]):
            return Measurement(value=math.nan)
        return Measurement(value=own[0] - its[0], standard_error=math.hypot(own[1], its[1]))

    return measure


def _claim(
    name: str, artifact: str, statement: str, location: str, quantity: str, measure: Measure, rule: Any
) -> Claim:
    """Return a claim."""
    return Claim(
        id=f"{artifact}-{name}",
        statement=statement,
        location=location,
        quantity=quantity,
        measure=measure,
        rule=rule,
    )


_PAPER = "Section 6, Appendix G.3"
_PUBLIC = "a public replication"
_BAR = "set here"
_JOINT = "joint loss minus that of the 20-particle ensemble, tau = 10, M = 1000"

REPLICATION: tuple[Claim, ...] = (
    _claim(
        "released",
        "rep_scaling",
        "The released epinet on a ResNet-20 has a lower joint loss than an ensemble of 20, neither tuned.",
        _PAPER,
        _JOINT,
        _epinets("released", "difference", kind="untuned"),
        _BELOW,
    ),
    _claim(
        "paper",
        "rep_scaling",
        "The epinet with both of the paper's priors has a lower joint loss than an ensemble of 20, neither tuned.",
        _PAPER,
        _JOINT,
        _epinets("paper", "difference", kind="untuned"),
        _BELOW,
    ),
    _claim(
        "bar",
        "rep_scaling",
        "The cold epinet has a lower joint loss than an ensemble of 20, temperatures of both chosen held-out.",
        _BAR,
        _JOINT,
        _epinets("cold", "difference"),
        _BELOW,
    ),
    _claim(
        "strict",
        "rep_scaling",
        "The cold epinet has a lower joint loss than an ensemble of 20 if no temperature may raise its marginal loss.",
        _BAR,
        _JOINT,
        _epinets("strict", "difference"),
        _BELOW,
    ),
    _claim(
        "cost",
        "rep_scaling",
        "The cold epinet and its base have fewer than 1.2 particles' parameters.",
        _BAR,
        "parameters in particles",
        _parameters,
        AtMost(bound=1.2),
    ),
    _claim(
        "marginal",
        "rep_scaling",
        "The cold epinet does not degrade the marginal loss of its base at the base's own temperature.",
        _BAR,
        "marginal loss minus the tempered base's",
        _epinets("cold", "excess"),
        _BELOW,
    ),
    _claim(
        "indices",
        "rep_m_curves",
        "More indices lower the joint loss of an epinet.",
        _PAPER,
        "joint loss at M = 1000 minus that at M = 10, tau = 10",
        _more_indices,
        _BELOW,
    ),
    _claim(
        "three",
        "rep_tau_curves",
        "At tau = 30 and M = 50 the released epinet has a lower joint loss than ensembles of 3.",
        _PUBLIC,
        "joint loss minus the ensembles', untuned",
        _against_size(3, tau=30, num_samples=50),
        _BELOW,
    ),
    _claim(
        "ten",
        "rep_tau_curves",
        "At tau = 30 and M = 50 ensembles of 10 have a lower joint loss than the released epinet.",
        _PUBLIC,
        "joint loss minus the ensembles', untuned",
        _against_size(10, tau=30, num_samples=50),
        _ABOVE,
    ),
    *(
        _claim(
            name,
            "rep_controls",
            f"The cold epinet has a lower joint loss than {words}, on the same features.",
            _BAR,
            "joint loss minus the control's, tau = 10, M = 1000, tuned",
            _against_control(agent),
            _BELOW,
        )
        for name, agent, words in (
            ("prior", "epinet without prior", "the same without a prior"),
            ("training", "epinet without training", "the same without training"),
            ("head", "deterministic head", "a deterministic head of its capacity"),
            ("heads", "linear heads", "an ensemble of linear heads with as many parameters"),
            ("laplace", "last-layer Laplace", "last-layer Laplace"),
            ("het", "heteroscedastic head", "a heteroscedastic head"),
            ("sngp", "SNGP head", "a Gaussian-process head"),
            ("dropout", "dropout on features", "dropout on the features"),
        )
    ),
    _claim(
        "ensemble",
        "rep_dyads",
        "The cold epinet has a lower joint loss than the ensemble of 20 under augmented dyadic sampling.",
        "Appendix E",
        "joint loss minus the ensemble's, tau = 10, M = 1000, tuned",
        _by_part("dyads", "joint", "epinet cold", "ensemble", sampling="augmented dyadic"),
        _BELOW,
    ),
    _claim(
        "ambiguous",
        "rep_human",
        "On ambiguous pairs with labels of people the cold epinet has a lower joint loss than the ensemble.",
        _BAR,
        "joint loss minus the ensemble's, tau = 10, M = 1000, tuned",
        _by_part("human", "joint", "epinet cold", "ensemble", subset="ambiguous", labels="people"),
        _BELOW,
    ),
    _claim(
        "strict",
        "rep_human",
        "With labels of people, an epinet that keeps the base's marginals has a lower joint loss than the ensemble.",
        _BAR,
        "joint loss of `strict` minus the ensemble's, all pairs, tau = 10, M = 1000, tuned",
        _by_part("human", "joint", "epinet strict", "ensemble", subset="all", labels="people"),
        _BELOW,
    ),
    _claim(
        "epistemic",
        "rep_ood",
        "The epistemic part of the cold epinet's uncertainty detects shifts better than its base's entropy.",
        _BAR,
        "mean AUROC over shifts minus the base's",
        _by_part("shifts", "auroc_epistemic", "epinet cold", "network", other="auroc_total"),
        _ABOVE,
    ),
)
