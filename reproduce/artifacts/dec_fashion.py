"""Beyond the paper: regret of agents at equal and at matched compute, and of rules."""

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Difference, at_most
from ..configs.decisions import Bandits, BanditSize
from ..stats import SEEDS
from .dec_bandits import draw as draw
from .dec_bandits import runs

# Two successes in a hundred steps.
_MARGIN = 20

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
        )
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
    place="Section 2",
    claims=(
        Claim(
            "dec_fashion-mlp",
            "In the bandit of Fashion-MNIST, an epinet has less regret than a conventional network.",
            "regret of epinet minus a conventional network, both by Thompson sampling, with as many updates",
            Difference("regret", runs("fashion"), runs("fashion", "mlp"), SEEDS),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_fashion-ensemble",
            "In the bandit of Fashion-MNIST, an epinet has less regret than the largest ensemble.",
            "regret of epinet minus the largest ensemble, both by Thompson sampling, with as many updates",
            Difference("regret", runs("fashion"), runs("fashion", "ensemble"), SEEDS),
            at_most(0, margin=_MARGIN),
        ),
    ),
)
