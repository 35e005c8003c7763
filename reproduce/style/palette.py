"""One color, marker and line style per agent, in every figure. Each also reads in black-and-white print.

The colors differ in lightness as well as in hue, and no two agents share marker and line style.
"""

from dataclasses import dataclass
from typing import Any

INK = "#1a1a1a"
"""Text, frames and exact curves."""

MUTED = "#8a8a8a"
"""The look of elements shown for comparison only."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """How an agent is drawn."""

    color: str
    marker: str
    linestyle: str | tuple[int, tuple[float, ...]]
    label: str

    def line(self, **changes: Any) -> dict[str, Any]:
        """Return keyword arguments for `Axes.plot` and `Axes.errorbar`."""
        look = {"color": self.color, "marker": self.marker, "linestyle": self.linestyle, "label": self.label}
        return {**look, **changes}


class _Looks(dict[str, Look]):
    """Looks by agent. One that has none yet is gray, under its own name."""

    def __missing__(self, name: str) -> Look:
        return Look(color=MUTED, marker="1", linestyle=(0, (1, 4)), label=name)


AGENTS: dict[str, Look] = _Looks(
    {
        "epinet": Look(color="#1f4fa3", marker="o", linestyle="-", label="epinet"),
        "ensemble": Look(color="#d6403a", marker="s", linestyle="--", label="ensemble"),
        "ensemble+": Look(color="#f08a3c", marker="D", linestyle="-.", label="ensemble+"),
        "mlp": Look(color="#4d4d4d", marker="x", linestyle=":", label="mlp"),
        "dropout": Look(color="#3d8b57", marker="^", linestyle=(0, (5, 1)), label="dropout"),
        "bbb": Look(color="#8c5aa8", marker="v", linestyle=(0, (3, 1, 1, 1)), label="bbb"),
        "hypermodel": Look(color="#b8860b", marker="P", linestyle=(0, (1, 1)), label="hypermodel"),
        "sgmcmc": Look(color="#000000", marker="*", linestyle=(0, (6, 3)), label="sgmcmc"),
        # The agents of the image figures; dropout, ensemble and epinet look as on the testbed.
        "resnet": Look(color="#6b6b6b", marker="X", linestyle=(0, (2, 2)), label="base network"),
        "mimo": Look(color="#2aa1a8", marker="<", linestyle=(0, (4, 1, 1, 1)), label="mimo"),
        "sngp": Look(color="#a0522d", marker=">", linestyle=(0, (1, 2)), label="sngp"),
        "het": Look(color="#c2559b", marker="h", linestyle=(0, (7, 2)), label="het"),
        # Heads on stored outputs of public networks.
        "pitman-yor": Look(color="#6a8f00", marker="p", linestyle=(0, (2, 1)), label="Pitman-Yor head"),
        "laplace": Look(color="#00536b", marker="d", linestyle=(0, (8, 2)), label="last-layer Laplace"),
        "heads": Look(color="#e0a3c2", marker="8", linestyle=(0, (1, 3)), label="ensemble of heads"),
        # The agents of Theorems 1 and 2: what matters there is what an agent knows, not how it learned it.
        "joint": Look(color="#1f4fa3", marker="o", linestyle="-", label="joint prediction"),
        "marginal": Look(color="#d6403a", marker="s", linestyle="--", label="exact marginals only"),
        "random": Look(color="#8a8a8a", marker="x", linestyle=":", label="random guess"),
    }
)
"""The look of each agent."""


def shade(probability: float) -> tuple[str, str]:
    """Return the fill of a cell with this probability, from white to the epinet's blue, and the color of its text."""
    target = tuple(int(AGENTS["epinet"].color[i : i + 2], 16) for i in (1, 3, 5))
    fill = "#" + "".join(f"{round(255 + probability * (channel - 255)):02x}" for channel in target)
    return fill, "#ffffff" if probability > 0.6 else INK
