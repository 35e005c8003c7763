"""Figure 12: as Figure 2, against the operations of a prediction."""

from matplotlib.figure import Figure

from ..claims import Claim, Ratio, at_most
from ..configs.images import PAIRS
from ..stats import LARGEST, Each
from ._images import EPINET, SCALED, TRAINED, Rows, image_artifact, of, scaling_figure

ARTIFACT = image_artifact(
    title="Base networks, ensembles and epinets against operations",
    label="fig:large_baselines_flops",
    protocol=PAIRS,
    dataset="imagenet",
    parts=TRAINED,
    minutes={"smoke": 0.5, "laptop": 0.1, "paper": 0},
    data="digit pairs instead of ImageNet, MLPs instead of ResNets",
    caption="The agents of Figure 2.",
    place="Appendix G.4, Figure 12",
    claims=(
        Claim(
            "fig12-ensemble",
            "The epinet costs fewer operations than the largest ensemble.",
            "FLOPs, epinet / largest ensemble",
            Ratio("flops", EPINET, of("ensemble", size=LARGEST), Each(("seed",))),
            at_most(1),
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    return scaling_figure(rows, SCALED, "flops")
