"""Figure 12: as Figure 2, against the operations of a prediction."""

from matplotlib.figure import Figure

from ..configs.images import PAIRS
from ._images import SCALED, TRAINED, Rows, image_artifact, scaling_figure

ARTIFACT = image_artifact(
    title="Base networks, ensembles and epinets against operations",
    label="fig:large_baselines_flops",
    protocol=PAIRS,
    dataset="imagenet",
    parts=TRAINED,
    minutes={"smoke": 0.5, "laptop": 0.1, "paper": 0},
    data="digit pairs instead of ImageNet, MLPs instead of ResNets",
    caption="The agents of Figure 2.",
)


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    return scaling_figure(rows, SCALED, "flops")
