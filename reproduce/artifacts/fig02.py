"""Figure 2: base networks, ensembles and epinets against parameters."""

from matplotlib.figure import Figure

from ..configs.images import PAIRS
from ._images import SCALED, TRAINED, Rows, image_artifact, scaling_claims, scaling_figure

ARTIFACT = image_artifact(
    title="Base networks, ensembles and epinets against parameters",
    label="fig:imagenet_overall",
    protocol=PAIRS,
    dataset="imagenet",
    parts=TRAINED,
    minutes={"smoke": 0.5, "laptop": 9, "paper": 6300},
    data="digit pairs instead of ImageNet, MLPs instead of ResNets",
    caption="Ensembles are of the smallest base network; there is an epinet on each base network.",
    place="Section 6, Figure 2",
    claims=scaling_claims("fig02"),
)


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    return scaling_figure(rows, SCALED, "parameters")
