"""The numbers of the replication as the documentation shows them, from the accepted CSVs alone."""

import math
from collections.abc import Sequence
from typing import Any

from ..over_bases import Rows, mean_of, shown, values_of


def _cell(rows: Rows, metric: str) -> str:
    """Return a mean with its standard error."""
    mean, error = mean_of(rows, metric)
    return "" if math.isnan(mean) else f"{mean:.3f} ± {error:.3f}"


def _line(name: str, rows: Sequence[Any], untuned: Sequence[Any]) -> str:
    """Return one line of the table."""
    particles = [float(row["parameters"]) / float(row["particle_parameters"]) for row in rows]
    cost = f"{sum(particles) / len(particles):.2f}"
    cells = [name, cost, _cell(rows, "marginal"), _cell(rows, "joint"), _cell(rows, "difference")]
    return f"| {' | '.join([*cells, _cell(untuned, 'joint')])} |"


def as_markdown(rows: Rows) -> str:
    """Return the table of ensembles and epinets at tau = 10 and M = 1000, from the rows of `rep_scaling`."""
    lines = [
        "| | particles' parameters | marginal | joint | minus ensemble of 20 | joint, untuned |",
        "|---|---|---|---|---|---|",
    ]
    for part, by, label in (("ensembles", "size", "ensemble of {1} ResNet-{0}"), ("epinets", "recipe", "epinet {1}")):
        own, untuned = shown(rows, part=part), shown(rows, part=part, kind="untuned")
        for depth in sorted(values_of(own, "depth")):
            for value in values_of([row for row in own if row["depth"] == depth], by):
                wanted = {"depth": depth, by: value}
                pair = [[r for r in rs if all(r[k] == v for k, v in wanted.items())] for rs in (own, untuned)]
                name = label.format(depth, value) + (f", ResNet-{depth}" if part == "epinets" else "")
                lines.append(_line(name, *pair))
    return "\n".join(lines) + "\n"
