"""Beyond the paper: regret of agents at equal and at matched compute, and of rules."""

from ..artifact import Artifact, Tolerance
from ..configs.decisions import Bandits, BanditSize
from .dec_bandits import draw as draw

ARTIFACT = Artifact(
    title="Regret of agents in a bandit of Fashion-MNIST",
    session="decisions",
    order=5,
    tiers={
        "replication": Bandits(
            bandits=("fashion",),
            matched=(),
            with_rules=(),
            size=BanditSize(num_steps=1000, num_runs=10, pooling=4, batch_size=32),
        ),
    },
    seed=205,
    run="bandits_fashion:run",
    groups="groups",
    reads_inputs=True,
    tolerances={"regret": Tolerance(absolute=30, relative=0.3), "error": Tolerance(absolute=20, relative=0.5)},
    minutes={"replication": 2},
    data="Fashion-MNIST",
    exact=True,
    caption="Larger ensembles have fuller markers.",
)
