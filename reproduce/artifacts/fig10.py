"""Figure 10: base networks, ensembles and epinets on CIFAR-10."""

from matplotlib.figure import Figure

from ..configs.images import DIGITS
from ._images import SCALED, TRAINED, Rows, image_artifact, scaling_claims, scaling_figure

ARTIFACT = image_artifact(
    title="Base networks, ensembles and epinets on CIFAR-10",
    label="fig:cifar10_scaling",
    protocol=DIGITS,
    dataset="cifar10",
    parts=TRAINED,
    minutes={"smoke": 0.5, "laptop": 3, "paper": 5},
    data="digits instead of CIFAR-10, MLPs instead of ResNets",
    caption="As Figure 2.",
    place="Appendix G.3, Figure 10",
    claims=scaling_claims("fig10"),
)


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    return scaling_figure(rows, SCALED, "parameters")
