"""Figure 4: the epinet, with the shapes and sizes of a real model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Exact, equals, select
from ..stats import Rows
from ..style import AGENTS, INK


@dataclass(frozen=True, kw_only=True)
class EpinetDiagram:
    """Figure 4: an epinet with the sizes of the Neural Testbed (Appendix F.3), taken apart.

    Attributes:
        in_dim: size of the input.
        num_classes: number of classes.
        hidden: hidden layers of the base network.
        index_dim: dimension of the index.
        epinet_hidden: hidden layers of the learnable epinet, and of the prior that matches it.
        prior_hidden: hidden layers of each member of the ensemble prior.
        prior_scale: scale of both priors.
        num_samples: index samples of the check that the base network runs once for all of them.
    """

    in_dim: int = 10
    num_classes: int = 2
    hidden: tuple[int, ...] = (50, 50)
    index_dim: int = 8
    epinet_hidden: tuple[int, ...] = (15, 15)
    prior_hidden: tuple[int, ...] = (5, 5)
    prior_scale: float = 0.3
    num_samples: int = 1000

    def units(self) -> Mapping[str, "EpinetDiagram"]:
        """Return the one run."""
        return {"structure": self}


def _check(name: str) -> Exact:
    """Return the value of a check, the largest if there are several."""
    return Exact("value", select(kind="check", part=lambda part: part.startswith(name)))


ARTIFACT = Artifact(
    title="The parts of an epinet",
    label="fig:epinet_diagram",
    session="theory",
    tiers={"smoke": EpinetDiagram(num_samples=20), "laptop": EpinetDiagram(), "paper": EpinetDiagram()},
    seed=4,
    run="epinet_diagram:structure",
    tolerances={"scale": Tolerance(relative=1e-06), "value": Tolerance(absolute=1e-05, relative=0.001)},
    minutes={"smoke": 0.05, "laptop": 0.05, "paper": 0.05},
    data="shapes and counts of a model of the Neural Testbed's size, no data",
    exact=True,
    caption="Each box shows layers and number of parameters; gray boxes are never trained.",
    place="Section 4.1",
    claims=(
        Claim(
            "fig04-sum",
            "The ENN is the sum of the base network, the learnable epinet and the prior networks.",
            "largest difference of an output from the sum of the parts",
            _check("output minus"),
            equals(0, tolerance=1e-05),
            location="Eq. (4) and (5)",
        ),
        Claim(
            "fig04-stop-gradient",
            "The features are stopped: no gradient of the epinet reaches the base network.",
            "largest gradient of what the epinet adds with respect to the base",
            _check("gradient of the epinet to the base"),
            equals(0, tolerance=0),
            location="Eq. (4)",
        ),
        Claim(
            "fig04-prior",
            "The prior network has no trainable parameters.",
            "trainable parameters of the prior networks",
            Exact("trainable", select(kind="part", part="prior")),
            equals(0, tolerance=0),
        ),
        Claim(
            "fig04-one-pass",
            "Many samples of the ENN need one forward pass of the base network.",
            "passes of the base network while the samples of one input are drawn",
            _check("passes of the base"),
            equals(1, tolerance=0),
        ),
    ),
)

_FEATURE_BUS, _INDEX_BUS, _SUM = 8.05, 8.4, 14.4
_TOP, _STEP, _DROP = 6.3, 1.75, 1.65


def _box(
    ax: Axes, x: float, y: float, lines: Sequence[str], *, width: float, height: float = 1.25, **look: Any
) -> None:
    """Draw a box around its center with a name and what it is."""
    style = {"facecolor": "#ffffff", "edgecolor": INK, "linewidth": 1.1, "zorder": 2, **look}
    corner = (x - width / 2, y - height / 2)
    ax.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=0.14", **style))
    offsets = [(len(lines) - 1) / 2 - i for i in range(len(lines))]
    for offset, line in zip(offsets, lines, strict=True):
        weight = "bold" if line is lines[0] and len(lines) > 1 else "normal"
        ax.text(x, y + 0.36 * offset, line, ha="center", va="center", fontsize=7.2, fontweight=weight, zorder=3)


def _arrow(ax: Axes, *points: tuple[float, float], head: bool = True, **look: Any) -> None:
    """Draw a line through points, with an arrow head at its end."""
    style = {"color": INK, "linewidth": 1.1, "zorder": 1, **look}
    xs, ys = zip(*points, strict=True)
    ax.plot(xs, ys, **style, solid_capstyle="butt")
    if head:
        arrow = {"arrowstyle": "-|>", "color": style["color"], "linewidth": 0, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", points[-1], points[-2], arrowprops=arrow, zorder=1)


def _size(part: Mapping[str, Any]) -> str:
    """Return the number of parameters in words."""
    return f"{part['parameters']:,} parameters"


def _prior_lines(part: Mapping[str, Any], number: int) -> list[str]:
    """Return what the box of a prior network says."""
    members = f"{part['members']} MLPs " if "members" in part else ""
    return [
        f"prior net {number} $\\sigma^P$, fixed",
        f"{members}{part['sizes']}",
        f"{_size(part)}, scale {part['scale']:g}",
    ]


def _draw_boxes(ax: Axes, parts: Mapping[str, Any], priors: Rows, heights: Sequence[float]) -> None:
    """Draw the parts of the model."""
    blue = AGENTS["epinet"].color
    low = heights[-1] - _DROP
    _box(ax, 0.7, _TOP, [f"$x$: {parts['input']['out_shape']}"], width=1.4, height=0.8)
    _box(ax, 0.7, low, [f"$z$: {parts['index']['out_shape']}"], width=1.4, height=0.8)
    base = ["base network $\\mu_\\zeta$", parts["base"]["sizes"], _size(parts["base"])]
    _box(ax, 4.9, _TOP, base, width=4.0)
    features = ["features $\\tilde{x} = \\mathrm{sg}[\\phi_\\zeta(x)]$", f"size {parts['features']['out_shape']}"]
    _box(ax, 4.9, heights[0], features, width=4.0, height=1.0)
    frame = {"facecolor": "#eef3fb", "edgecolor": blue, "linewidth": 1.0, "linestyle": (0, (4, 2)), "zorder": 0}
    center = (heights[0] + heights[-1]) / 2
    _box(ax, 10.65, center, [], width=5.6, height=heights[0] - heights[-1] + 2.0, **frame)
    ax.text(13.4, heights[-1] - 1.02, "epinet $\\sigma_\\eta$", color=blue, fontsize=8, ha="right", va="top")
    learnable = ["learnable $\\sigma^L_\\eta$", parts["learnable"]["sizes"], _size(parts["learnable"])]
    _box(ax, 11.0, heights[0], learnable, width=4.4, edgecolor=blue, linewidth=1.4)
    for number, (prior, y) in enumerate(zip(priors, heights[1:], strict=True), start=1):
        _box(ax, 11.0, y, _prior_lines(prior, number), width=4.4, facecolor="#ececec", linestyle=(0, (3, 1.5)))
    ax.plot(_SUM, heights[0], marker="o", markersize=17, color="#ffffff", markeredgecolor=INK, zorder=2)
    ax.text(_SUM, heights[0], "+", ha="center", va="center", fontsize=11, zorder=3)
    output = ["output $f_\\theta(x, z)$", f"logits: {parts['output']['out_shape']}"]
    _box(ax, 16.9, heights[0], output, width=2.9, height=1.0)
    total = parts["output"]
    words = f"{total['parameters']:,} parameters\n{total['trainable']:,} trainable"
    ax.text(16.9, heights[0] - 0.8, words, ha="center", va="top", fontsize=7.2)


def _draw_arrows(ax: Axes, priors: Rows, heights: Sequence[float]) -> None:
    """Draw what flows where: inputs in black, the index in blue, and the mark of the stopped gradient."""
    blue = AGENTS["epinet"].color
    first, low = heights[0], heights[-1] - _DROP
    _arrow(ax, (1.4, _TOP), (2.9, _TOP))
    _arrow(ax, (4.9, _TOP - 0.625), (4.9, first + 0.5))
    middle = (_TOP - 0.625 + first + 0.5) / 2
    for shift in (-0.05, 0.05):
        ax.plot([4.6, 5.2], [middle + shift] * 2, color=INK, linewidth=1.3)
    ax.text(5.35, middle, "no gradient", ha="left", va="center", fontsize=7, style="italic")
    _arrow(ax, (6.9, first), (8.8, first))
    for prior, y in zip(priors, heights[1:], strict=True):
        source = (0.7, _TOP - 0.4) if prior["reads"] == "input" else (_FEATURE_BUS, first)
        _arrow(ax, source, (source[0], y), (8.8, y))
    _arrow(ax, (1.4, low), (_INDEX_BUS, low), (_INDEX_BUS, first - 0.35), head=False, color=blue)
    for y in heights:
        _arrow(ax, (_INDEX_BUS, y - 0.35), (8.8, y - 0.35), color=blue)
    words = "each is contracted with $z$"
    ax.text(_INDEX_BUS - 0.1, low + 0.1, words, ha="right", va="bottom", fontsize=7, color=blue, style="italic")
    _arrow(ax, (6.9, _TOP), (_SUM, _TOP), (_SUM, first + 0.3))
    _arrow(ax, (13.2, first), (_SUM - 0.3, first))
    for y in heights[1:]:
        _arrow(ax, (13.2, y), (_SUM, y), (_SUM, first - 0.3))
    _arrow(ax, (_SUM + 0.3, first), (15.45, first))


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    parts = {row["part"]: row for row in rows if row["kind"] == "part"}
    priors = [row for row in rows if row["kind"] == "part" and row["part"] == "prior"]
    heights = [_TOP - _STEP * (1 + i) for i in range(1 + len(priors))]
    figure = Figure(figsize=(6.75, 1.5 + 0.82 * len(heights)))
    ax = figure.add_subplot()
    _draw_boxes(ax, parts, priors, heights)
    _draw_arrows(ax, priors, heights)
    ax.set_xlim(-0.1, 18.45)
    ax.set_ylim(heights[-1] - _DROP - 0.5, _TOP + 0.75)
    ax.axis("off")
    return figure
