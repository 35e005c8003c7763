"""How far agents are from the Bayes optimum: their accepted divergences on the problems whose posterior is known."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .aggregate import read_rows
from .alpha_rule import scores
from .paths import REFERENCE
from .stats import PROBLEMS, UNKNOWN, Measurement, Rows, values_of, where
from .style import AGENTS as STYLES

AGENTS = (
    "mlp",
    "mlp + head",
    "dropout",
    "ensemble",
    "bbb",
    "hypermodel",
    "ensemble+",
    "ensemble+ of 10 + head",
    "epinet",
    "epinet + head",
    "sgmcmc",
)
"""What is compared with the optimum: agents of Figure 5, ensembles of the largest size, and means through the head."""

MOST_R_HAT = 1.1
TOLERANCE = (0.02, 0.05)
"""By how much the joint divergences of two runs may differ: nats, and a share of their mean."""

_ENSEMBLE_SIZE = "num_particles=100"
_SETTING = ("input_dim", "data_ratio", "temperature")


def has_converged(row: Mapping[str, Any]) -> bool:
    """Return whether the chains of a problem agree: R-hat, its median over inputs, and the divergences of two runs."""
    first, second = float(row["first_joint"]), float(row["second_joint"])
    absolute, relative = TOLERANCE
    allowed = absolute + relative * (first + second) / 2
    return float(row["median_r_hat"]) <= MOST_R_HAT and abs(first - second) <= allowed


def known(rows: Rows) -> list[Mapping[str, Any]]:
    """Return the optima that count: those of problems whose chains have converged."""
    return [row for row in rows if row["agent"] == "bayes" and has_converged(row)]


def _accepted(name: str) -> Rows:
    """Return the accepted rows of an artifact at tier `paper`, none if there are none."""
    path = REFERENCE / "paper" / f"{name}.csv"
    return read_rows(path) if path.exists() else []


def accepted_optima() -> list[Mapping[str, Any]]:
    """Return the accepted optima that count."""
    return known(_accepted("testbed_limit"))


def accepted_agents(problems: Collection[int]) -> list[Mapping[str, Any]]:
    """Return the accepted rows of Figure 5 on these problems."""
    return [row for row in _accepted("fig05") if row["problem"] in problems]


def tuned_chains(rows: Rows) -> list[Mapping[str, Any]]:
    """Return the accepted rows of the tuned `sgmcmc` on the problems of these rows, all under one label.

    Its hyperparameters are a member of the authors' sweep for each temperature, chosen on problems of other seeds.
    """
    problems = {row["problem"] for row in rows}
    return [{**row, "label": "sgmcmc"} for row in _accepted("testbed_sgmcmc") if row["problem"] in problems]


def claim_name(agent: str) -> str:
    """Return how one of `AGENTS` is named in claims."""
    return agent.replace(" + ", "-").replace("+", "-plus").replace(" ", "-")


def look(agent: str, **changes: Any) -> dict[str, Any]:
    """Return the marks of one of `AGENTS`: white for mean predictions through the head."""
    name = agent.removesuffix(" + head")
    own = STYLES[name.removesuffix(" of 10")].line(label=None, linestyle="", **changes)
    return own if name == agent else {**own, "markerfacecolor": "white"}


def _named(row: Mapping[str, Any]) -> str:
    """Return which of `AGENTS` a row of Figure 5 is of; empty for smaller ensembles and the released `sgmcmc`."""
    is_smaller = row["agent"].startswith("ensemble") and not row["label"].endswith(_ENSEMBLE_SIZE)
    return "" if is_smaller or row["agent"] == "sgmcmc" else row["agent"]


def agents_on(optima: Rows) -> list[Mapping[str, Any]]:
    """Return the accepted rows of each agent on the problems of these optima, named as in `AGENTS`.

    Problems and test inputs are the same: differences are paired.
    """
    problems = {row["problem"] for row in optima}
    through = [
        {**row, "label": row["label"].replace("-num_particles=", " of ")} for row in scores(_accepted("testbed_mean"))
    ]
    found = [{**row, "label": _named(row)} for row in accepted_agents(problems)]
    found += [row for row in through if row["label"].endswith(" + head")]
    found += tuned_chains(optima)
    return [row for row in found if row["label"] in AGENTS and row["problem"] in problems]


def ablations_on(optima: Rows) -> list[Mapping[str, Any]]:
    """Return the accepted rows of the epinets of Figure 9 on the problems of these optima.

    A setting of which only one problem is left is left out: it would have no error.
    """
    problems = {row["problem"] for row in optima}
    rows = [row for row in _accepted("fig09") if row["problem"] in problems]
    left: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        left.setdefault(tuple(row[name] for name in _SETTING), set()).add(row["problem"])
    return [row for row in rows if len(left[tuple(row[name] for name in _SETTING)]) > 1]


def regret(agents: Rows, optima: Rows, agent: str, metric: str = "joint") -> list[Mapping[str, Any]]:
    """Return an agent's rows, each with its divergence minus that of the optimum of the problem, as `regret`."""
    best = {row["problem"]: float(row[metric]) for row in optima}
    own = [row for row in where(agents, label=agent) if row["problem"] in best]
    return [{**row, "regret": float(row[metric]) - best[row["problem"]]} for row in own]


def over_optimum(agents: Rows, optima: Rows, agent: str, metric: str = "joint", **wanted: Any) -> Measurement:
    """Return an agent's mean divergence over that of the optimum, on the problems with these values."""
    own, best = where(agents, label=agent, **wanted), where(optima, **wanted)
    return PROBLEMS.ratio(own, best, metric) if own and best else UNKNOWN


def nearest(agents: Rows, optima: Rows, metric: str = "joint", **wanted: Any) -> tuple[str, Measurement]:
    """Return the agent with the smallest mean divergence on the problems with these values, and its ratio."""
    found = {agent: over_optimum(agents, optima, agent, metric, **wanted) for agent in AGENTS}
    there = {agent: ratio for agent, ratio in found.items() if not math.isnan(ratio.value)}
    return min(there.items(), key=lambda item: item[1].value) if there else ("", UNKNOWN)


def settings_of(rows: Rows) -> Sequence[tuple[int, float, float]]:
    """Return the settings of rows: input dimension, data ratio and temperature."""
    return sorted({(row["input_dim"], row["data_ratio"], row["temperature"]) for row in rows})


def temperatures_of(rows: Rows) -> Sequence[float]:
    """Return the temperatures of rows."""
    return sorted(values_of(rows, "temperature"))
