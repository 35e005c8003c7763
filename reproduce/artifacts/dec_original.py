"""Beyond the paper: regret in the authors' bandit, at the length that they run it."""

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Difference, at_most
from ..configs.decisions import HEAD, THROUGH_HEAD, Bandits, BanditSize
from ..configs.testbed import FEW, variant_of
from ..stats import SEEDS
from .dec_bandits import draw as draw
from .dec_bandits import runs

# What it costs to try each of the hundred actions once, if half of them fail.
_MARGIN = 50

ARTIFACT = Artifact(
    title="Regret in the authors' bandit, at its own length",
    session="decisions",
    order=8,
    tiers={
        "smoke": Bandits(
            bandits=("neural",),
            variants=(*FEW, THROUGH_HEAD),
            matched=(),
            rules=("greedy",),
            with_rules=("neural",),
            size=BanditSize(num_steps=40, num_runs=2, input_dim=2, actions_per_dim=2, batch_size=4, num_points=4),
        ),
        "paper": Bandits(
            bandits=("neural",),
            variants=(
                variant_of("mlp"),
                variant_of("epinet"),
                THROUGH_HEAD,
                *(variant_of("ensemble", num_particles=size) for size in (3, 10)),
                variant_of("ensemble+", num_particles=10),
            ),
            matched=(),
            rules=("greedy",),
            with_rules=("neural",),
            size=BanditSize(input_dim=2),
        ),
    },
    seed=208,
    run="bandits:run",
    groups="groups",
    tolerances={"regret": Tolerance(absolute=100, relative=0.3), "error": Tolerance(absolute=50, relative=0.5)},
    minutes={"smoke": 1, "paper": 15},
    data="bandits with true models of the Neural Testbed",
    exact=True,
    caption="Actions are drawn once, and rewards are labels of the testbed. Larger ensembles have fuller markers.",
    place="Section 2",
    claims=(
        Claim(
            "dec_original-mlp",
            "In the authors' bandit, an epinet has less regret than a conventional network.",
            "regret of epinet minus mlp, both by Thompson sampling",
            Difference("regret", runs("neural"), runs("neural", "mlp"), SEEDS),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_original-ensemble",
            "In the authors' bandit, an epinet has less regret than the largest ensemble.",
            "regret of epinet minus the largest ensemble, with as many updates",
            Difference("regret", runs("neural"), runs("neural", "ensemble"), SEEDS),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_original-ensemble-plus",
            "In the authors' bandit, an epinet has less regret than an ensemble with prior functions.",
            "regret of epinet minus ensemble+, with as many updates",
            Difference("regret", runs("neural"), runs("neural", "ensemble+"), SEEDS),
            at_most(0, margin=_MARGIN),
            location="beyond the paper",
        ),
        Claim(
            "dec_original-greedy",
            "In the authors' bandit, Thompson sampling has less regret than the greedy rule.",
            "regret of the epinet by Thompson sampling minus greedy",
            Difference("regret", runs("neural"), runs("neural", rule="greedy"), SEEDS),
            at_most(0, margin=_MARGIN),
            location="beyond the paper",
        ),
        Claim(
            "dec_original-head",
            "In the authors' bandit, a conventional network has less regret through a Pitman-Yor head than without it.",
            "regret of mlp by Thompson sampling, through the head minus without it",
            Difference("regret", runs("neural", HEAD), runs("neural", "mlp"), SEEDS),
            at_most(0, margin=_MARGIN),
            location="beyond the paper",
        ),
    ),
)
