"""Figure 12 at the paper's sizes: what the epinet adds to the operations of ResNet-50 to -200."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Exact, at_most, select
from ..configs.image_paper import full_protocol
from ..configs.images import PaperCosts
from ..stats import Rows, values_of, where
from ..style import AGENTS, MUTED, add_legend


def _share(row: Mapping[str, Any]) -> float:
    """Return the epinet's share of all operations."""
    return 1 - row["base_flops"] / row["flops"]


_EPINET = full_protocol("imagenet").epinet

ARTIFACT = Artifact(
    title="What the epinet adds to the operations of the paper's ResNets",
    label="fig:large_baselines_flops",
    session="imagenet",
    seed=13,
    tiers={
        "smoke": PaperCosts(epinet=_EPINET, depths=(50,)),
        "laptop": PaperCosts(epinet=_EPINET),
        "paper": PaperCosts(epinet=_EPINET),
    },
    run="image_costs:run",
    minutes={"smoke": 0.1, "laptop": 0.3, "paper": 0.3},
    data="counted operations of ResNet-50 to ResNet-200, no data",
    exact=True,
    caption="One image at a time, and in batches that share what depends on the index alone.",
    tolerances={"base_flops": Tolerance(relative=0.02), "flops": Tolerance(relative=0.02)},
    place="Appendix G.4",
    claims=(
        Claim(
            "fig12-half",
            "A thousand indices cost less than half of all operations, on every ResNet of the paper.",
            "operations of the epinet / of network and epinet, one image at a time, largest",
            Exact(_share, select(num_samples=1000, batch_size=1)),
            at_most(0.5),
        ),
        Claim(
            "fig12-half-base",
            "In batches of 100 images, a thousand indices cost less than half of the base network.",
            "operations of the epinet / of the base network, batches of 100 images, largest",
            Exact(lambda row: row["flops"] / row["base_flops"] - 1, select(num_samples=1000, batch_size=100)),
            at_most(0.5),
            location="Appendix G.4 (the batch is ours)",
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw the epinet's share of the operations over the number of indices, one panel per size of a batch."""
    sizes = values_of(rows, "batch_size")
    figure = Figure(figsize=(6.75, 2.7))
    axes = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    depths = values_of(rows, "depth")
    for ax, size in zip(axes, sizes, strict=True):
        for rank, depth in enumerate(depths):
            own = where(rows, depth=depth, batch_size=size)
            look = AGENTS["epinet"].line(label=f"ResNet-{depth}", alpha=0.35 + 0.65 * rank / max(len(depths) - 1, 1))
            ax.plot([row["num_samples"] for row in own], [_share(row) for row in own], **look)
        ax.axhline(0.5, color=MUTED, linewidth=0.8, linestyle=":")
        ax.set_xscale("log")
        ax.set_ylim(0, 1)
        ax.set_xlabel("indices $M$")
        ax.set_title("one image at a time" if size == 1 else f"batches of {size} images", fontsize=8)
    axes[0].set_ylabel("epinet's share of the operations")
    add_legend(figure, axes[0])
    return figure
