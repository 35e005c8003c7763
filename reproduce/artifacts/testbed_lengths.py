"""Beyond the paper: whether the chains of the tuned `sgmcmc` are long enough."""

from matplotlib.figure import Figure

from ..artifact import Artifact
from ..claims import Claim, RelativeChange, equals, select
from ..configs.testbed import SWEPT_CHAIN
from ..configs.testbed_lengths import TunedLengths
from ..stats import LARGEST, Paired, Rows
from . import testbed_chains

ARTIFACT = Artifact(
    title="Chains of the tuned sgmcmc: how long they must be",
    session="testbed",
    order=3,
    tiers={"paper": TunedLengths()},
    # Problems of its own: a length that is chosen here is judged on others.
    seed=54,
    run="testbed_chains:run",
    groups="groups",
    tolerances=testbed_chains.ARTIFACT.tolerances,
    minutes={"paper": 6},
    data="two chains for each problem, with other seeds",
    caption="As for the released chains: right, each line is a problem; at the dotted line chains agree.",
    claims=(
        Claim(
            "testbed_lengths-length",
            "Chains of the tuned sgmcmc that are two and a half times as long as those of Figure 5 make no difference.",
            "relative difference in joint KL, Figure 5's length - longest chains",
            RelativeChange(
                "joint",
                select(num_steps=SWEPT_CHAIN),
                select(num_steps=LARGEST),
                Paired(by=("problem",), within=("chain",)),
            ),
            equals(0, tolerance=0.05),
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw the joint divergence over the length, and how well two chains agree."""
    return testbed_chains.draw(rows)
