"""Figure 2: base networks, ensembles and epinets against parameters."""

from matplotlib.figure import Figure

from ..configs.imagenet import BankStudy
from ..configs.images import PAIRS
from ._imagenet import bank_artifact, bank_scaling_figure
from ._imagenet import scaling_claims as bank_claims
from ._images import SCALED, TRAINED, Rows, image_artifact, scaling_claims, scaling_figure


def _draw_from_scratch(rows: Rows) -> Figure:
    """Draw what was trained here."""
    return scaling_figure(rows, SCALED, "parameters")


_FROM_SCRATCH = image_artifact(
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
    draw=_draw_from_scratch,
)

ARTIFACT = bank_artifact(
    _FROM_SCRATCH,
    config=BankStudy(parts=("base", "ensemble", "epinet"), first_parts=("departures",), ends_parts=("recommended",)),
    minutes=4.5,
    caption=(
        "Public networks of ImageNet, each alone, with an epinet and with a Pitman-Yor head. Open circles: all "
        "outputs at the temperature of training; diamond: the temperatures of the released networks; stars: the "
        "smallest and the largest network with a prior scale chosen like the temperature. Ensembles are of mixed "
        "architecture: the largest network is the first member, the smallest the last. Everything is fitted on all "
        "folds of the images but one and judged on that; bars are standard errors over blocks of images."
    ),
    claims=bank_claims("fig02"),
)


def draw(rows: Rows) -> Figure:
    """Draw the figure from the bank."""
    return bank_scaling_figure(rows, "parameters")
