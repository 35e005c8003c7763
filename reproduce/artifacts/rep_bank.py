"""The trained networks of the replication: how often each is right on the test set."""

import math

from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..configs.replication import BankConfig
from ..stats import Rows
from ..style import AGENTS

ARTIFACT = Artifact(
    title="The trained networks: accuracy, and the speed at which features are extracted",
    session="cifar",
    order=1,
    tiers={"replication": BankConfig()},
    seed=20,
    run="replication_bank:run",
    reads_inputs=True,
    tolerances={
        "accuracy": Tolerance(absolute=0.001),
        "marginal": Tolerance(absolute=0.001),
        "seconds": Tolerance(absolute=math.inf),
        "cpu_seconds": Tolerance(absolute=math.inf),
        "images_per_second": Tolerance(absolute=math.inf),
    },
    minutes={"replication": 70},
    data="CIFAR-10",
    exact=True,
    caption="Each dot is a network. Speeds are in the accepted CSV.",
)


def draw(rows: Rows) -> Figure:
    """Draw test accuracy by depth, one point per network."""
    own = [row for row in rows if row["images"] == "test"]
    depths = sorted({row["depth"] for row in own})
    figure = Figure(figsize=(4.2, 2.8), layout="constrained")
    axes = figure.subplots()
    for place, depth in enumerate(depths):
        values = sorted(row["accuracy"] for row in own if row["depth"] == depth)
        spread = [place + 0.3 * (number / max(1, len(values) - 1) - 0.5) for number in range(len(values))]
        axes.plot(spread, values, linestyle="", marker="o", markersize=4, color=AGENTS["resnet"].color)
    axes.set_xticks(range(len(depths)), [f"ResNet-{depth}" for depth in depths])
    axes.set_ylabel("accuracy on the test set")
    return figure
