"""Figure 11: base networks, ensembles and epinets on CIFAR-100."""

from matplotlib.figure import Figure

from ..configs.images import PAIRS_FIVE
from ._images import SCALED, TRAINED, Rows, image_artifact, scaling_claims, scaling_figure

ARTIFACT = image_artifact(
    title="Base networks, ensembles and epinets on CIFAR-100",
    label="fig:cifar100_scaling",
    protocol=PAIRS_FIVE,
    dataset="cifar100",
    parts=TRAINED,
    minutes={"smoke": 0.5, "laptop": 5, "paper": 5},
    # No network on CIFAR-100 is at hand, and a session shows real images unless it is asked for others.
    on_request=("laptop",),
    data="digit pairs instead of CIFAR-100, MLPs instead of ResNets",
    caption="As Figure 2.",
    place="Appendix G.3, Figure 11",
    claims=scaling_claims("fig11"),
)


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    return scaling_figure(rows, SCALED, "parameters")
