"""What agents know jointly about different inputs, on the Neural Testbed, where the truth is known."""

import math
from typing import Any

from matplotlib.figure import Figure

from ..artifact import Artifact
from ..claims import Claim, at_least, at_most
from ..configs.testbed import TWO_SEEDS
from ..configs.testbed_near import NearScaling
from ..stats import PROBLEMS, Measurement, Rows, values_of, where
from ..style import AGENTS, MUTED
from ._head import HEAD

_AGENTS = NearScaling().variants
_ENSEMBLE = _AGENTS[2].label


def _is_different(correlation: float) -> bool:
    """Return whether inputs are neither unrelated nor equal."""
    return 0 < correlation < 1


def _mean_over_clusters(rows: Rows) -> list[dict[str, Any]]:
    """Return one row per problem: the mean over clusters of different, related inputs."""
    kept = [row for row in rows if _is_different(row["correlation"])]
    found = []
    for problem in values_of(kept, "problem"):
        own = where(kept, problem=problem)
        means = {name: sum(float(row[name]) for row in own) / len(own) for name in ("marginal", "joint", "gain")}
        found.append({**own[0], **means})
    return found


def _chosen(rows: Rows, label: str) -> dict[float, tuple[float, float]]:
    """Return alpha and length scale for each temperature: the lowest mean divergence on problems not judged."""
    kept = where(rows, label=label, how="field", is_judged=False)
    found = {}
    for temperature in values_of(kept, "temperature"):
        own = where(kept, temperature=temperature)
        pairs = dict.fromkeys((row["alpha"], row["length_scale"]) for row in own)

        def cost(pair: tuple[float, float], own: Rows = own) -> float:
            return sum(float(row["joint"]) for row in own if (row["alpha"], row["length_scale"]) == pair)

        found[temperature] = min(pairs, key=cost)
    return found


def agents(rows: Rows) -> list[dict[str, Any]]:
    """Return the judged rows of each agent as it is, and of its mean prediction through the chosen field."""
    found: list[dict[str, Any]] = []
    for label in values_of(rows, "label"):
        found += [dict(row) for row in where(rows, label=label, how="own", is_judged=True)]
        chosen = _chosen(rows, label)
        for row in where(rows, label=label, how="field", is_judged=True):
            if chosen.get(row["temperature"]) == (row["alpha"], row["length_scale"]):
                found.append({**row, "label": f"{label} + field"})
    return found


def _gain(label: str) -> Any:
    """Return what an agent knows about different inputs beyond its marginals."""
    return lambda rows: PROBLEMS.mean(_mean_over_clusters(where(agents(rows), label=label)), "gain")


def _minus(first: str, second: str) -> Any:
    """Return the paired difference of the joint divergences of two agents."""

    def difference(rows: Rows) -> Measurement:
        own, others = (_mean_over_clusters(where(agents(rows), label=label)) for label in (first, second))
        return PROBLEMS.difference(own, others, "joint", "joint") if own and others else Measurement(math.nan)

    return difference


_DIFFERENCE = "joint divergence of two different inputs, minus the other's"

ARTIFACT = Artifact(
    **{**HEAD, "run": "testbed_near:score"},
    title="What agents know jointly about different inputs",
    tiers={
        "smoke": NearScaling(
            variants=_AGENTS[:2],
            problems=(16, 17),
            rule_problems=(16, 17),
            alphas=(0.1, 0.6),
            length_scales=(0.3, 1.0),
            num_clusters=100,
            num_samples=100,
        ),
        "laptop": NearScaling(),
        "paper": NearScaling(problems=TWO_SEEDS, rule_problems=tuple(range(1, 181, 5)), num_clusters=200),
    },
    minutes={"smoke": 0.2, "laptop": 5, "paper": 20},
    caption=(
        "Log-likelihood that joint predictions of two inputs, one label each, gain over the product of their "
        "marginals, from unrelated inputs to equal ones. Filled: unchanged agents; white: their mean predictions "
        "through the Pitman-Yor head with a field over inputs, whose share and length scale were chosen on "
        "problems with other seeds. Right, for correlated inputs, over the number of examples per dimension."
    ),
    claims=(
        Claim(
            "testbed_near-epinet",
            "The epinet knows more about different inputs jointly than the product of its marginals.",
            "gain in log-likelihood of two different inputs, in nats",
            _gain("epinet"),
            at_least(0),
        ),
        Claim(
            "testbed_near-field",
            "So does the network through the head with a field.",
            "gain in log-likelihood of two different inputs, in nats",
            _gain("mlp + field"),
            at_least(0),
        ),
        Claim(
            "testbed_near-epinet-field",
            "At different inputs, the epinet is not above the network through the head with a field.",
            _DIFFERENCE,
            _minus("epinet", "mlp + field"),
            at_most(0),
        ),
        Claim(
            "testbed_near-ensemble-field",
            "At different inputs, ten particles with priors are not above the network through the head with a field.",
            _DIFFERENCE,
            _minus(_ENSEMBLE, "mlp + field"),
            at_most(0),
        ),
        Claim(
            "testbed_near-combined",
            "At different inputs, the epinet's mean prediction through the field is not above the epinet's own.",
            _DIFFERENCE,
            _minus("epinet + field", "epinet"),
            at_most(0),
        ),
    ),
)


def _look(label: str) -> dict[str, Any]:
    """Return the line of an agent: that of its own predictions, or in white through the field."""
    name = label.removesuffix(" + field")
    shown = label.replace("-num_particles=", " of ")
    if name == label:
        return AGENTS[name.partition("-")[0]].line(label=shown)
    return {**AGENTS[name.partition("-")[0]].line(label=shown), "markerfacecolor": "white", "linestyle": ":"}


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    judged = [row for row in agents(rows) if row["label"] != "mlp"]
    figure = Figure(figsize=(6.75, 2.8))
    left, right = figure.subplots(1, 2)
    correlations = sorted(values_of(judged, "correlation"))
    for label in values_of(judged, "label"):
        own = where(judged, label=label)
        found = [PROBLEMS.mean(where(own, correlation=value), "gain") for value in correlations]
        left.errorbar(
            range(len(correlations)),
            [one.value for one in found],
            yerr=[0.0 if math.isnan(one.standard_error) else one.standard_error for one in found],
            **_look(label),
        )
        different = _mean_over_clusters(own)
        ratios = sorted(values_of(different, "data_ratio"))
        means = [PROBLEMS.mean(where(different, data_ratio=value), "gain").value for value in ratios]
        right.plot(ratios, means, **_look(label))
    for ax in (left, right):
        ax.axhline(0, color=MUTED, linewidth=0.8)
    left.set_xticks(range(len(correlations)), [f"{value:g}" for value in correlations])
    left.set_xlabel("correlation of the inputs")
    left.set_ylabel("gain of joint predictions (nats)")
    right.set_xscale("log")
    right.set_xlabel("examples per dimension $\\lambda$")
    left.legend(fontsize="x-small")
    return figure
