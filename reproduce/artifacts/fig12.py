"""Figure 12: as Figure 2, against the operations of a prediction."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from ..claims import Claim, Ratio, at_most
from ..configs.imagenet import BankStudy
from ..configs.images import PAIRS
from ..stats import LARGEST, Each
from . import _imagenet
from ._images import EPINET, SCALED, TRAINED, Rows, image_artifact, of, scaling_figure


def _draw_from_scratch(rows: Rows) -> Figure:
    """Draw what was trained here."""
    return scaling_figure(rows, SCALED, "flops")


_FROM_SCRATCH = image_artifact(
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
    draw=_draw_from_scratch,
)

_PARTICLES = 100
"""The size of the paper's largest ensemble, whose operations are so many times those of its network."""


def _flops(row: Mapping[str, Any]) -> float:
    """Return the operations of an epinet, or those of the largest ensemble of a network."""
    return float(row["flops"]) * (_PARTICLES if row["agent"] == "resnet" else 1)


ARTIFACT = _imagenet.bank_artifact(
    _FROM_SCRATCH,
    config=BankStudy(parts=("base", "ensemble", "epinet")),
    minutes=0.1,
    caption=(
        "The networks, epinets and ensembles of Figure 2. Operations are counted by the compiler, additions and "
        "multiplications alike; those that depend on the index alone are shared by a batch of images."
    ),
    claims=(
        Claim(
            "fig12-ensemble",
            "The epinet costs fewer operations than the largest ensemble.",
            "FLOPs, epinet on ResNet-50 / 100 particles of ResNet-50",
            Ratio(_flops, _imagenet.EPINET, _imagenet.BASE, Each(("block",))),
            at_most(1),
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw the figure from the bank."""
    return _imagenet.bank_scaling_figure(rows, "flops")
