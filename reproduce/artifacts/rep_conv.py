"""The row of Figure 14 that needs pixels: the scale of the convolutional prior, on real ImageNet."""

from matplotlib.figure import Figure

from ..artifact import Artifact
from ..claims import Claim, Difference, RelativeChange, Select, at_least, at_most, equals, select
from ..configs.imagenet import ConvScales
from ..stats import Rows, values_of, where
from ..style import AGENTS, MUTED
from . import _imagenet
from ._images import LOSSES, METRICS

_PAPER = 1.0


def _at(scale: float) -> Select:
    """Return the epinets with a scale of the convolutional prior."""
    return select(value=scale)


ARTIFACT = Artifact(
    title="The convolutional prior of the epinet, on ImageNet",
    session="imagenet",
    order=2,
    seed=26,
    tiers={"replication": ConvScales()},
    run="imagenet_conv:run",
    reads_inputs=True,
    minutes={"replication": 3},
    data="ResNet-50, stored outputs and pixels of 4,000 validation images of ImageNet",
    exact=True,
    tolerances=LOSSES,
    caption=(
        "The epinet on the network of Figure 14 with both of the paper's priors, the matched one at the paper's scale. "
        "Folds, training and indices are those of Figure 14 at tier laptop, whose default is the point without the "
        "convolutional prior. The dotted line marks the paper's scale. Bars: standard errors over blocks of images."
    ),
    place="Appendix G.5, Figure 14",
    claims=(
        Claim(
            "rep_conv-large",
            "Too large a scale of the convolutional prior hurts.",
            "joint log-loss, scale 5 - scale 1",
            Difference("joint", _at(5.0), _at(_PAPER), _imagenet.PER_BLOCK),
            at_least(0),
        ),
        Claim(
            "rep_conv-joint",
            "The convolutional prior at the paper's scale improves joint predictions.",
            "joint log-loss, scale 1 - scale 0",
            Difference("joint", _at(_PAPER), _at(0.0), _imagenet.PER_BLOCK),
            at_most(0),
            location="beyond the paper",
        ),
        Claim(
            "rep_conv-marginal",
            "The convolutional prior at the paper's scale leaves the marginal log-loss as it is.",
            "relative difference in marginal log-loss, scale 1 - scale 0",
            RelativeChange("marginal", _at(_PAPER), _at(0.0), _imagenet.PER_BLOCK),
            equals(0, tolerance=0.1),
            location="beyond the paper",
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw the three losses over the scale of the convolutional prior."""
    figure = Figure(figsize=(6.75, 2.0))
    values = sorted(values_of(rows, "value"))
    for ax, (metric, words) in zip(figure.subplots(1, 3), METRICS.items(), strict=True):
        points = [_imagenet.point(where(rows, value=value), "value", metric) for value in values]
        _, means, bars = zip(*points, strict=True)
        ax.errorbar(range(len(values)), means, yerr=bars, capsize=2, **AGENTS["epinet"].line(label=None, markersize=4))
        if _PAPER in values:
            ax.axvline(values.index(_PAPER), color=MUTED, linewidth=1.0, linestyle=":", zorder=1)
        ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        ax.set_xlabel("conv prior scale")
        ax.set_ylabel(words)
        ax.margins(y=0.2)
    return figure
