"""The report as a picture: each program's share of the machine's limit, scaling, and the trend over past reports."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from reproduce.style import INK, MUTED, style_context

from ._scaling import Curve

_TIME, _MEMORY = "#1f4fa3", "#d6403a"


def _label_multiples(axes: Any, values: tuple[float, ...]) -> None:
    """Label a logarithmic axis with multiples."""
    axes.set_yticks(values, [rf"{value:g}$\times$" for value in values])
    axes.minorticks_off()


def _draw_shares(axes: Any, programs: dict[str, dict[str, float]], limit: float) -> None:
    """Draw the rate of each program as a bar, with its time beside it."""
    rates = {name: program["operations"] / program["seconds"] for name, program in programs.items()}
    names = sorted(rates, key=lambda name: rates[name])
    shares = [100 * rates[name] / limit for name in names]
    axes.barh(names, shares, color=_TIME, height=0.7)
    for position, (name, share) in enumerate(zip(names, shares, strict=True)):
        label = f"{1e3 * programs[name]['seconds']:.3g} ms"
        axes.text(share * 1.15, position, label, va="center", fontsize=7, color=INK)
    axes.set(xscale="log", xlim=(min(shares) / 1.5, 200), title="Share of the machine's limit, and time of a call")
    axes.set_xlabel(f"% of a product of matrices, {limit / 1e9:.0f} GFLOP/s")
    axes.tick_params(axis="y", length=0, labelsize=7.5)
    axes.grid(False, axis="y")


def _draw_curve(axes: Any, curve: Curve) -> None:
    """Draw time and memory over a size, each over its value at the smallest size."""
    sizes = np.array(curve.sizes)
    series = (
        ("time", curve.times, curve.time_exponent, {"color": _TIME, "marker": "o"}),
        ("memory", curve.memory, curve.memory_exponent, {"color": _MEMORY, "marker": "s", "linestyle": "--"}),
    )
    for name, values, exponent, look in series:
        label = rf"{name} $\propto$ size$^{{{exponent:.2f}}}$"
        axes.plot(sizes, np.array(values) / values[0], **look, label=label)
    axes.plot(sizes, sizes / sizes[0], color=MUTED, linewidth=0.8, linestyle=":", zorder=0)
    axes.set(xscale="log", yscale="log", title=curve.what, ylim=(0.7, 40))
    axes.set_xticks(curve.sizes, [f"{size:,}" for size in curve.sizes])
    _label_multiples(axes, (1, 2, 4, 8, 16))
    axes.legend(loc="upper left", handlelength=1.6)


def _draw_trend(axes: Any, history: list[dict[str, Any]]) -> None:
    """Draw the time of each program over the reports, in units of the machine's limit, as multiples of the first."""
    for name in history[0]["programs"]:
        known = [(number, entry) for number, entry in enumerate(history) if name in entry["programs"]]
        work = np.array([entry["programs"][name]["seconds"] * entry["limit"] for _, entry in known])
        axes.plot([number for number, _ in known], work / work[0], ".-", color=_TIME, alpha=0.35, linewidth=1)
    axes.axhline(1, color=MUTED, linewidth=0.8)
    axes.set(yscale="log", title="Time over the first report", xlabel="report")
    axes.set_xticks(range(len(history)))
    _label_multiples(axes, (0.5, 0.7, 1, 1.5, 2))


def draw(history: list[dict[str, Any]], curves: list[Curve]) -> Figure:
    """Draw the last entry of the history, and the trend if there is more than one."""
    last = history[-1]
    with style_context():
        figure = plt.figure(figsize=(10, 10.5))
        grid = figure.add_gridspec(3, 3, height_ratios=(2.2, 1, 1))
        _draw_shares(figure.add_subplot(grid[0, :]), last["programs"], last["limit"])
        places = [grid[row, column] for row in (1, 2) for column in range(3)]
        for place, curve in zip(places, curves, strict=False):
            _draw_curve(figure.add_subplot(place), curve)
        if len(history) > 1:
            _draw_trend(figure.add_subplot(places[len(curves)]), history)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, whose bytes do not depend on the day."""
    with style_context():
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
