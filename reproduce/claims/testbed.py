"""Claims of the Neural Testbed's artifacts (Section 5, Appendix F)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..configs.testbed import ENSEMBLE_SIZES, TUNED_CHAIN, variant_of
from ..record import Row
from ..stratified import as_one, difference_of, labels_of, mean_of
from .ledger import Claim, Measurement
from .rules import AtLeast, AtMost, Equals, Rule
from .select import Measure, where

_UNKNOWN = Measurement(value=math.nan)
_SECTION, _APPENDIX = "Section 5", "Appendix F.4"


def _size(rows: Sequence[Row], agent: str, *, largest: bool) -> str:
    """Return the label of the smallest or largest variant of an agent; empty if there is none."""
    sizes = {label: where(rows, label=label)[0]["parameters"] for label in labels_of(rows, agent)}
    return "" if not sizes else (max if largest else min)(sizes, key=sizes.__getitem__)


def _difference(rows: Sequence[Row], label: str, other: str, metric: str) -> Measurement:
    """Return a paired difference of means."""
    value, error = difference_of(rows, label, other, metric)
    return _UNKNOWN if math.isnan(value) else Measurement(value=value, standard_error=error)


def _relative(rows: Sequence[Row], label: str, other: str, metric: str) -> Measurement:
    """Return a paired difference of means, as a share of the other's mean."""
    found, (base, _) = _difference(rows, label, other, metric), mean_of(rows, other, metric)
    return Measurement(value=found.value / base, standard_error=found.standard_error / base)


def _against(agent: str, metric: str, *, largest: bool = True) -> Measure:
    """Compare the epinet with the smallest or largest variant of an agent."""

    def measure(rows: Sequence[Row]) -> Measurement:
        return _difference(rows, _size(rows, "epinet", largest=True), _size(rows, agent, largest=largest), metric)

    return measure


def _share_of_ensemble(rows: Sequence[Row]) -> Measurement:
    found = _relative(rows, _size(rows, "epinet", largest=True), _size(rows, "ensemble", largest=True), "joint")
    return Measurement(value=1 + found.value, standard_error=found.standard_error)


def _marginal_spread(rows: Sequence[Row]) -> Measurement:
    """Return the largest relative difference of an agent's marginal divergence from that of `mlp`, either way."""
    mlp = _size(rows, "mlp", largest=True)
    agents = ("ensemble", "dropout", "bbb", "hypermodel", "ensemble+", "epinet")
    labels = [_size(rows, agent, largest=True) for agent in agents]
    found = [_relative(rows, label, mlp, "marginal") for label in labels if label]
    worst = max(found, key=lambda m: abs(m.value))
    return Measurement(value=abs(worst.value), standard_error=worst.standard_error)


def _parameter_ratio(rows: Sequence[Row]) -> Measurement:
    single = {row["problem"]: row["parameters"] for row in where(rows, agent="mlp")}
    return Measurement(
        value=max(
            row["parameters"] / single[row["problem"]]
            for row in where(rows, agent="epinet", label=_size(rows, "epinet", largest=True))
        )
    )


def _compute_ratio(agent: str) -> Measure:
    """Compare the training compute of an agent's largest variant with the epinet's, over all problems together."""

    def measure(rows: Sequence[Row]) -> Measurement:
        totals = [
            sum(row["flops"] for row in where(rows, label=_size(rows, name, largest=True)))
            for name in (agent, "epinet")
        ]
        return Measurement(value=totals[0] / totals[1]) if totals[0] else _UNKNOWN

    return measure


def _growth(agent: str) -> Measure:
    """Compare the joint divergence of an agent's largest variant with that of its smallest."""

    def measure(rows: Sequence[Row]) -> Measurement:
        labels = [_size(rows, agent, largest=largest) for largest in (True, False)]
        return _difference(rows, labels[0], labels[1], "joint") if labels[0] != labels[1] else _UNKNOWN

    return measure


def _of_chains(measure: Measure) -> Measure:
    """Measure with chains of `sgmcmc` as one agent: how long they are depends on the problem."""
    return lambda rows: measure(as_one(rows, "sgmcmc"))


def _where_present(word: str, measure: Measure) -> Measure:
    """Measure a cost at the paper's own size only: what a smaller tier saves says nothing of it."""
    return lambda rows: measure(rows) if any(word in str(row["label"]) for row in rows) else _UNKNOWN


def _nonfinite(rows: Sequence[Row]) -> Measurement:
    return Measurement(value=sum(row["nonfinite"] != 0 for row in rows))


def _changed(
    metric: str, change: dict[str, Any], other: dict[str, Any] | None = None, *, relative: bool = False
) -> Measure:
    """Compare a changed epinet with the tuned one, or with another changed one."""

    def measure(rows: Sequence[Row]) -> Measurement:
        labels = [variant_of("epinet", **(changes or {})).label for changes in (change, other)]
        return (_relative if relative else _difference)(rows, labels[0], labels[1], metric)

    return measure


def _farthest(changes: Sequence[dict[str, Any]]) -> Measure:
    """Return the largest relative difference of the joint divergence from that of the tuned epinet, either way."""

    def measure(rows: Sequence[Row]) -> Measurement:
        found = [_changed("joint", change, relative=True)(rows) for change in changes]
        known = [m for m in found if not math.isnan(m.value)]
        if not known:
            return _UNKNOWN
        worst = max(known, key=lambda m: abs(m.value))
        return Measurement(value=abs(worst.value), standard_error=worst.standard_error)

    return measure


def _wider_prior(rows: Sequence[Row]) -> Measurement:
    """Compare the epinet with `sgmcmc` whose prior has ten times the variance of the authors' default."""
    labels = [label for label in labels_of(rows, "sgmcmc") if label.endswith("-prior_variance=1.0")]
    return _difference(rows, "epinet", labels[0], "joint") if labels else _UNKNOWN


def _shorter_chains(rows: Sequence[Row]) -> Measurement:
    """Return how much more the second longest chains diverge than the longest, as a share of these."""
    lengths = sorted({row["num_steps"] for row in rows})
    by_length = [
        {(row["problem"], row["chain"]): row["joint"] for row in where(rows, num_steps=length)}
        for length in lengths[-2:]
    ]
    base = sum(by_length[1].values()) / len(by_length[1])
    problems = sorted({problem for problem, _ in by_length[1]})
    differences = [
        sum(by_length[0][problem, chain] - by_length[1][problem, chain] for chain in (0, 1)) / 2 / base
        for problem in problems
    ]
    mean = sum(differences) / len(differences)
    spread = sum((value - mean) ** 2 for value in differences) / max(len(differences) - 1, 1)
    return Measurement(value=mean, standard_error=math.sqrt(spread / len(differences)))


def _estimator_errors(rows: Sequence[Row]) -> Measurement:
    """Return the mean ratio of standard errors, sampled over exact, at ten labels."""
    errors = [
        {(row["label"], row["problem"]): row["error"] for row in where(rows, curve=curve, tau=10)}
        for curve in ("labels, sampled", "labels, exact")
    ]
    ratios = [error / errors[1][name] for name, error in errors[0].items() if errors[1][name] > 0]
    mean = sum(ratios) / len(ratios)
    spread = sum((ratio - mean) ** 2 for ratio in ratios) / max(len(ratios) - 1, 1)
    return Measurement(value=mean, standard_error=math.sqrt(spread / len(ratios)))


def _fewer_indices(rows: Sequence[Row]) -> Measurement:
    """Return the epinet's joint divergence with the fewest indices minus that with the most."""
    own = [row for row in where(rows, agent="epinet", curve="indices", tau=10)]
    counts = sorted({row["num_samples"] for row in own})
    joined = [{**row, "label": str(row["num_samples"])} for row in own]
    return _difference(joined, str(counts[0]), str(counts[-1]), "mean")


def _claim(id_: str, statement: str, quantity: str, measure: Callable[..., Measurement], rule: Rule) -> Claim:
    """Return a claim; its place in the paper follows from its id."""
    location = {"fig05": _SECTION, "fig09": _APPENDIX}.get(id_.partition("-")[0], "beyond the paper")
    return Claim(
        id=id_,
        statement=statement,
        location=location,
        quantity=quantity,
        measure=measure,
        rule=rule,
    )


_BETTER = AtMost(bound=0.0)
_WORSE = AtLeast(bound=0.0)

TESTBED: tuple[Claim, ...] = (
    _claim(
        "fig05-marginals",
        "After tuning, all agents are alike in marginal prediction.",
        "largest relative difference in marginal KL from mlp, of agents trained by SGD",
        _marginal_spread,
        AtMost(bound=0.25),
    ),
    _claim(
        "fig05-ensemble",
        "The epinet predicts jointly much better than a large ensemble, of 100 particles at tier paper.",
        "joint KL, epinet / largest ensemble",
        _share_of_ensemble,
        AtMost(bound=0.75),
    ),
    _claim(
        "fig05-size",
        "The epinet has less than twice the parameters of a particle.",
        "largest ratio of parameters, epinet / mlp",
        _parameter_ratio,
        AtMost(bound=2.0),
    ),
    _claim(
        "fig05-compute",
        "The epinet costs much less than the largest ensemble.",
        "training FLOPs, largest ensemble / epinet",
        _where_present(f"num_particles={ENSEMBLE_SIZES[-1]}", _compute_ratio("ensemble")),
        AtLeast(bound=5.0),
    ),
    _claim(
        "fig05-ensemble-plus",
        "The epinet is better than the largest ensemble with prior functions.",
        "joint KL, epinet - largest ensemble+",
        _against("ensemble+", "joint"),
        _BETTER,
    ),
    _claim(
        "fig05-ensemble-plus-small",
        "The epinet is better than an ensemble with prior functions of few particles.",
        "joint KL, epinet - smallest ensemble+",
        _against("ensemble+", "joint", largest=False),
        _BETTER,
    ),
    *(
        _claim(
            f"fig05-{agent}",
            f"The epinet predicts jointly better than {agent}.",
            f"joint KL, epinet - {agent}",
            _against(agent, "joint"),
            _BETTER,
        )
        for agent in ("dropout", "bbb", "hypermodel")
    ),
    _claim(
        "fig05-sgmcmc",
        "Stochastic-gradient MCMC, near the Bayes optimum, predicts jointly best.",
        "joint KL, epinet - sgmcmc",
        _of_chains(_against("sgmcmc", "joint")),
        _WORSE,
    ),
    _claim(
        "fig05-sgmcmc-compute",
        "Stochastic-gradient MCMC costs much more than the epinet.",
        "training FLOPs, sgmcmc / epinet",
        _where_present(f"num_steps={TUNED_CHAIN}", _of_chains(_compute_ratio("sgmcmc"))),
        AtLeast(bound=5.0),
    ),
    _claim(
        "fig05-growth",
        "Ensembles predict jointly better the more particles they have.",
        "joint KL, largest - smallest ensemble",
        _growth("ensemble"),
        _BETTER,
    ),
    _claim(
        "fig05-growth-plus",
        "Ensembles with prior functions do, too.",
        "joint KL, largest - smallest ensemble+",
        _growth("ensemble+"),
        _BETTER,
    ),
    _claim(
        "fig05-finite",
        "No agent diverges on any problem.",
        "runs with values that are not finite",
        _nonfinite,
        AtMost(bound=0.0),
    ),
    _claim(
        "fig09-index-joint",
        "A larger index dimension improves joint predictions.",
        "joint KL, 32 - 1",
        _changed("joint", {"index_dim": 32}, {"index_dim": 1}),
        _BETTER,
    ),
    _claim(
        "fig09-index-marginal",
        "A larger index dimension improves marginal predictions.",
        "marginal KL, 32 - 1",
        _changed("marginal", {"index_dim": 32}, {"index_dim": 1}),
        _BETTER,
    ),
    _claim(
        "fig09-layers",
        "The number of hidden layers does not matter much.",
        "largest relative difference in joint KL from two layers",
        _farthest([{"epinet_hidden": (15,) * layers} for layers in (1, 3, 4)]),
        AtMost(bound=0.15),
    ),
    _claim(
        "fig09-width",
        "The width does not matter much once it is large enough.",
        "largest relative difference in joint KL from width 15, of widths 50 and 100",
        _farthest([{"epinet_hidden": (width,) * 2} for width in (50, 100)]),
        AtMost(bound=0.15),
    ),
    _claim(
        "fig09-prior-marginal",
        "A smaller prior scale predicts marginals better.",
        "marginal KL, factor 0 - factor 3",
        _changed("marginal", {"prior_scale": 0.0}, {"prior_scale": 3.0}),
        _BETTER,
    ),
    _claim(
        "fig09-prior-none",
        "Too small a prior scale degrades joint predictions.",
        "joint KL, factor 0 - tuned",
        _changed("joint", {"prior_scale": 0.0}),
        _WORSE,
    ),
    _claim(
        "fig09-prior-large",
        "Too large a prior scale degrades joint predictions.",
        "joint KL, factor 3 - tuned",
        _changed("joint", {"prior_scale": 3.0}),
        _WORSE,
    ),
    _claim(
        "fig09-prior-width",
        "Wider prior networks improve joint predictions.",
        "joint KL, width 50 - width 1",
        _changed("joint", {"prior_hidden": (50, 50)}, {"prior_hidden": (1, 1)}),
        _BETTER,
    ),
    _claim(
        "fig09-prior-width-marginal",
        "Beyond a point, wider prior networks improve little.",
        "relative difference in joint KL, width 50 - width 10",
        _changed("joint", {"prior_hidden": (50, 50)}, {"prior_hidden": (10, 10)}, relative=True),
        Equals(target=0.0, tolerance=0.15),
    ),
    _claim(
        "fig09-decay-small",
        "Too small an L2 decay degrades joint predictions.",
        "joint KL, factor 0.002 - tuned",
        _changed("joint", {"decay": 0.002}),
        _WORSE,
    ),
    _claim(
        "fig09-decay-large",
        "Too large an L2 decay degrades joint predictions.",
        "joint KL, factor 20 - tuned",
        _changed("joint", {"decay": 20.0}),
        _WORSE,
    ),
    _claim(
        "testbed_departures-initializer",
        "Glorot's initialization or the truncated normal of the authors' code makes no difference to the epinet.",
        "relative difference in joint KL, truncated normal - Glorot",
        _changed("joint", {"initializer": "truncated_normal"}, relative=True),
        Equals(target=0.0, tolerance=0.15),
    ),
    _claim(
        "testbed_departures-stop-gradient",
        "To stop the gradient of the features, or not as in the authors' code, makes no difference to the epinet.",
        "relative difference in joint KL, not stopped - stopped",
        _changed("joint", {"stop_gradient": False}, relative=True),
        Equals(target=0.0, tolerance=0.15),
    ),
    _claim(
        "testbed_departures-sgmcmc",
        "With a prior variance of 1, not 0.1 as in the authors' code, sgmcmc predicts jointly better than the epinet.",
        "joint KL, epinet - sgmcmc with prior variance 1",
        _wider_prior,
        _WORSE,
    ),
    _claim(
        "testbed_curves-estimator",
        "The exact estimator of the divergence varies less than the sampled one.",
        "standard error at ten labels, sampled / exact, mean over runs",
        _estimator_errors,
        AtLeast(bound=1.0),
    ),
    _claim(
        "testbed_curves-indices",
        "With more indices the epinet's joint divergence falls.",
        "joint KL, fewest - most indices",
        _fewer_indices,
        _WORSE,
    ),
    _claim(
        "testbed_chains-length",
        "Chains of sgmcmc shorter than the longest make no difference.",
        "relative difference in joint KL, second longest - longest chains",
        _shorter_chains,
        Equals(target=0.0, tolerance=0.05),
    ),
)
