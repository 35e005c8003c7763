"""Claims of the image artifacts (Section 6, Appendices E and G)."""

import math
from collections.abc import Sequence
from typing import Any

from ..over_seeds import by_seed, mean_over, shown_at, sizes_of
from ..record import Row
from .ledger import Claim, Measurement
from .rules import AtLeast, AtMost, Equals, Rule
from .select import Measure

_NUM_SAMPLES = 1000
_PAPER_COUNTS = {"dropout": 10, "sngp": 10}
_BASELINES = ("dropout", "mimo", "sngp", "het")
_NONE = Measurement(value=math.nan)
_BETTER = AtMost(bound=0.0)
_WORSE = AtLeast(bound=0.0)

Values = dict[int, float]


def _measured(values: Values) -> Measurement:
    """Return the mean over seeds; what is not there, or has one seed only, decides nothing."""
    mean, error = mean_over(list(values.values()))
    return _NONE if math.isnan(mean) else Measurement(value=mean, standard_error=error)


def _minus(first: Values, second: Values) -> Values:
    """Return differences, paired by seed."""
    return {seed: first[seed] - second[seed] for seed in first.keys() & second.keys()}


def _over(first: Values, second: Values) -> Values:
    """Return ratios, paired by seed."""
    return {seed: first[seed] / second[seed] for seed in first.keys() & second.keys()}


def _of(rows: Sequence[Row], agent: str, metric: str, *, largest: bool = False, **wanted: Any) -> Values:
    """Return a metric of an agent's smallest or largest variant, by seed."""
    sizes = sizes_of(rows, agent)
    return by_seed(rows, metric, agent=agent, size=sizes[-1 if largest else 0], **wanted) if sizes else {}


def _against(
    agent: str, metric: str = "joint", *, counts: dict[str, int] | None = None, largest: bool = False
) -> Measure:
    """Compare the epinet on the smallest base with an agent."""

    def measure(rows: Sequence[Row]) -> Measurement:
        shown = shown_at(rows, counts or {}, _NUM_SAMPLES)
        return _measured(_minus(_of(shown, "epinet", metric), _of(shown, agent, metric, largest=largest)))

    return measure


def _parameter_ratio(rows: Sequence[Row]) -> Measurement:
    shown = shown_at(rows, {}, _NUM_SAMPLES)
    ratio = _over(_of(shown, "epinet", "parameters"), _of(shown, "resnet", "parameters"))
    return Measurement(value=max(ratio.values(), default=math.nan))


def _flop_ratio(other: str, *, largest: bool) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        shown = shown_at(rows, {}, _NUM_SAMPLES)
        ratio = _over(_of(shown, "epinet", "flops"), _of(shown, other, "flops", largest=largest))
        return Measurement(value=max(ratio.values(), default=math.nan))

    return measure


def _same_marginals(metric: str) -> Measure:
    """Return the relative difference that epinets make to a marginal metric, over all sizes."""

    def measure(rows: Sequence[Row]) -> Measurement:
        shown = shown_at(rows, {}, _NUM_SAMPLES)
        found: dict[int, list[float]] = {}
        for size in sizes_of(shown, "epinet"):
            with_, without = (by_seed(shown, metric, agent=agent, size=size) for agent in ("epinet", "resnet"))
            for seed, ratio in _over(with_, without).items():
                found.setdefault(seed, []).append(ratio - 1)
        return _measured({seed: sum(values) / len(values) for seed, values in found.items()})

    return measure


def _growth(rows: Sequence[Row]) -> Measurement:
    """Return the change in joint loss from the smallest to the largest ensemble, minus that of the base network."""
    shown = shown_at(rows, {}, _NUM_SAMPLES)
    changes = [
        _minus(_of(shown, agent, "joint", largest=True), _of(shown, agent, "joint")) for agent in ("ensemble", "resnet")
    ]
    return _measured(_minus(changes[0], changes[1]))


def _larger(agent: str, metric: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        shown = shown_at(rows, {}, _NUM_SAMPLES)
        return _measured(_minus(_of(shown, agent, metric, largest=True), _of(shown, agent, metric)))

    return measure


def _ensemble_against_largest(rows: Sequence[Row]) -> Measurement:
    shown = shown_at(rows, {}, _NUM_SAMPLES)
    return _measured(
        _minus(_of(shown, "ensemble", "marginal", largest=True), _of(shown, "resnet", "marginal", largest=True))
    )


def _at_counts(metric: str, few: int, many: int | None) -> Measure:
    """Compare epinets with few indices and with many; with none of these, with the base network alone."""

    def measure(rows: Sequence[Row]) -> Measurement:
        first = _of(rows, "epinet", metric, num_samples=few)
        second = _of(rows, "resnet", metric) if many is None else _of(rows, "epinet", metric, num_samples=many)
        return _measured(_minus(first, second))

    return measure


def _changed(row: str, value: float, metric: str = "joint", *, other: float | None = None) -> Measure:
    """Compare an epinet with another value of a factor with the default, or with another value."""

    def measure(rows: Sequence[Row]) -> Measurement:
        second = by_seed(rows, metric, row="default")
        if other is not None:
            second = by_seed(rows, metric, row=row, value=other)
        return _measured(_minus(by_seed(rows, metric, row=row, value=value), second))

    return measure


def _farthest(row: str, metric: str = "joint") -> Measure:
    """Return the largest relative difference of any value of a factor from the default, either way."""

    def measure(rows: Sequence[Row]) -> Measurement:
        default = by_seed(rows, metric, row="default")
        values = sorted({r["value"] for r in rows if r.get("row") == row})
        found = [
            _measured({s: ratio - 1 for s, ratio in _over(by_seed(rows, metric, row=row, value=v), default).items()})
            for v in values
        ]
        known = [m for m in found if not math.isnan(m.value)]
        if not known:
            return _NONE
        worst = max(known, key=lambda m: abs(m.value))
        return Measurement(value=abs(worst.value), standard_error=worst.standard_error)

    return measure


_PLACES = {
    "fig02": "Section 6, Figure 2",
    "fig06": "Section 6, Figure 6",
    "fig08": "Appendix E, Figure 8",
    "fig10": "Appendix G.3, Figure 10",
    "fig11": "Appendix G.3, Figure 11",
    "fig12": "Appendix G.4, Figure 12",
    "fig13": "Appendix G.4, Figure 13",
    "fig14": "Appendix G.5, Figure 14",
}


# Comparisons of ours that the paper does not make.
_OURS = ("fig06-dropout-equal", "fig06-sngp-equal", "fig06-no-prior", "fig06-head")


def _claim(id_: str, statement: str, quantity: str, measure: Measure, rule: Rule) -> Claim:
    """Return a claim; its place in the paper follows from its id."""
    location = "beyond the paper" if id_ in _OURS else _PLACES[id_.partition("-")[0]]
    return Claim(id=id_, statement=statement, location=location, quantity=quantity, measure=measure, rule=rule)


def _scaling(artifact: str) -> tuple[Claim, ...]:
    """Return the claims about base networks, ensembles and epinets on one data set."""
    return (
        _claim(
            f"{artifact}-ensemble",
            "The epinet on the smallest network predicts jointly better than the largest ensemble of it.",
            "joint log-loss, epinet - largest ensemble",
            _against("ensemble", largest=True),
            _BETTER,
        ),
        _claim(
            f"{artifact}-base",
            "The epinet predicts jointly better than its base network.",
            "joint log-loss, epinet - base",
            _against("resnet"),
            _BETTER,
        ),
        _claim(
            f"{artifact}-size",
            "The epinet has less than twice the parameters of its base network.",
            "parameters, epinet / base",
            _parameter_ratio,
            AtMost(bound=2.0),
        ),
        _claim(
            f"{artifact}-error",
            "The epinet leaves the classification error of networks as it is.",
            "relative difference in error, mean over sizes",
            _same_marginals("error"),
            Equals(target=0.0, tolerance=0.1),
        ),
        _claim(
            f"{artifact}-marginal",
            "The epinet leaves the marginal log-loss of networks as it is.",
            "relative difference in marginal log-loss, mean over sizes",
            _same_marginals("marginal"),
            Equals(target=0.0, tolerance=0.1),
        ),
        _claim(
            f"{artifact}-growth",
            "Ensembles gain more in joint log-loss by more particles than networks by more layers.",
            "change in joint log-loss from smallest to largest, ensemble - base",
            _growth,
            _BETTER,
        ),
        _claim(
            f"{artifact}-larger",
            "Larger networks predict marginals better.",
            "marginal log-loss, largest - smallest base",
            _larger("resnet", "marginal"),
            _BETTER,
        ),
        _claim(
            f"{artifact}-ensemble-marginal",
            "In marginal log-loss, the largest ensemble does not reach the largest network.",
            "marginal log-loss, largest ensemble - largest base",
            _ensemble_against_largest,
            _WORSE,
        ),
    )


IMAGES: tuple[Claim, ...] = (
    *_scaling("fig02"),
    *(
        _claim(
            f"fig06-{agent}",
            f"The epinet predicts jointly better than {agent}.",
            f"joint log-loss, epinet - {agent}"
            + (f" (M = {_PAPER_COUNTS[agent]} for {agent})" if agent in _PAPER_COUNTS else ""),
            _against(agent, counts=_PAPER_COUNTS),
            _BETTER,
        )
        for agent in _BASELINES
    ),
    *(
        _claim(
            f"fig06-{agent}-equal",
            f"The epinet predicts jointly better than {agent} also with as many indices.",
            f"joint log-loss, epinet - {agent}, M = {_NUM_SAMPLES} for both",
            _against(agent),
            _BETTER,
        )
        for agent in ("dropout", "sngp")
    ),
    _claim(
        "fig06-no-prior",
        "With its prior the epinet predicts jointly better than without.",
        "joint log-loss, epinet - the same without prior",
        _against("epinet without prior"),
        _BETTER,
    ),
    _claim(
        "fig06-head",
        "The epinet predicts jointly better than a head of its capacity without an index.",
        "joint log-loss, epinet - deterministic head",
        _against("deterministic head"),
        _BETTER,
    ),
    _claim(
        "fig08-ensemble",
        "Under augmented dyadic sampling, too, the epinet is better than the largest ensemble.",
        "augmented joint log-loss, epinet - largest ensemble",
        _against("ensemble", "augmented", largest=True),
        _BETTER,
    ),
    *(
        _claim(
            f"fig08-{agent}",
            f"Under augmented dyadic sampling, too, the epinet is better than {agent}.",
            f"augmented joint log-loss, epinet - {agent}",
            _against(agent, "augmented"),
            _BETTER,
        )
        for agent in ("resnet", *_BASELINES)
    ),
    _claim(
        "fig12-half",
        "A thousand indices cost less than half of the network.",
        "FLOPs, epinet / base",
        _flop_ratio("resnet", largest=False),
        AtMost(bound=1.5),
    ),
    _claim(
        "fig12-ensemble",
        "The epinet costs fewer operations than the largest ensemble.",
        "FLOPs, epinet / largest ensemble",
        _flop_ratio("ensemble", largest=True),
        AtMost(bound=1.0),
    ),
    _claim(
        "fig13-few",
        "Even ten indices improve on the base network.",
        "joint log-loss, epinet with M = 10 - base",
        _at_counts("joint", 10, None),
        _BETTER,
    ),
    _claim(
        "fig13-more",
        "Joint log-loss falls with the number of indices.",
        "joint log-loss, M = 1000 - M = 10",
        _at_counts("joint", 1000, 10),
        _BETTER,
    ),
    _claim(
        "fig13-beyond",
        "It keeps falling beyond a thousand.",
        "joint log-loss, M = 3000 - M = 1000",
        _at_counts("joint", 3000, 1000),
        _BETTER,
    ),
    _claim(
        "fig13-marginal",
        "In marginal log-loss, no number of indices is better than the base network.",
        "marginal log-loss, M = 3000 - base",
        _at_counts("marginal", 3000, None),
        _WORSE,
    ),
    _claim(
        "fig14-index",
        "A larger index dimension improves joint predictions.",
        "joint log-loss, 16 - 2",
        _changed("index dimension", 16, other=2),
        _BETTER,
    ),
    _claim(
        "fig14-layers",
        "Another hidden layer makes joint predictions worse.",
        "joint log-loss, two layers - one",
        _changed("hidden layers", 2),
        _WORSE,
    ),
    _claim(
        "fig14-matched",
        "Too large a scale of the matched prior hurts.",
        "joint log-loss, scale 5 - default",
        _changed("matched prior scale", 5.0),
        _WORSE,
    ),
    _claim(
        "fig14-conv",
        "Too large a scale of the convolutional prior hurts.",
        "joint log-loss, scale 5 - default",
        _changed("conv prior scale", 5.0),
        _WORSE,
    ),
    _claim(
        "fig14-decay",
        "A large L2 decay improves joint predictions.",
        "joint log-loss, decay 0.01 - default",
        _changed("L2 decay", 1e-2),
        _BETTER,
    ),
    _claim(
        "fig14-decay-marginal",
        "A large L2 decay makes marginal predictions slightly worse.",
        "marginal log-loss, decay 0.01 - default",
        _changed("L2 decay", 1e-2, "marginal"),
        _WORSE,
    ),
    _claim(
        "fig14-samples",
        "The number of index samples per step does not matter much.",
        "largest relative difference in joint log-loss from the default",
        _farthest("index samples"),
        AtMost(bound=0.15),
    ),
    _claim(
        "fig14-smoothing",
        "Label smoothing does not matter much.",
        "largest relative difference in joint log-loss from the default",
        _farthest("label smoothing"),
        AtMost(bound=0.15),
    ),
    _claim(
        "fig14-cold",
        "A cold temperature after training improves joint predictions.",
        "joint log-loss, temperature 0.5 - 1",
        _changed("temperature", 0.5),
        _BETTER,
    ),
    *_scaling("fig10"),
    *_scaling("fig11"),
)
