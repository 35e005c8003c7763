"""Mean predictions of ENNs through the Pitman-Yor head, on the Neural Testbed."""

from matplotlib.figure import Figure

from ..alpha_rule import minus, scores
from ..artifact import Artifact
from ..claims import Claim, at_most
from ..configs.testbed import BALANCED, variant_of
from ..configs.testbed_head import HeadScaling
from ..stats import Measurement, Rows
from ._head import HEAD, draw_scores

_AGENTS = (variant_of("mlp"), variant_of("epinet"), variant_of("ensemble+", num_particles=10))


def _ensemble(rows: Rows) -> Measurement:
    """Return what the head changes about the ensemble, if there is one."""
    label = next((str(row["label"]) for row in rows if row["agent"] == "ensemble+"), "")
    return minus(scores(rows), f"{label} + head", label)


ARTIFACT = Artifact(
    **HEAD,
    title="Mean predictions of ENNs through the Pitman-Yor head: divergence",
    tiers={
        "smoke": HeadScaling(
            variants=_AGENTS[:2], problems=(16, 17), rule_problems=(16, 17), num_batches=20, num_samples=100
        ),
        "laptop": HeadScaling(variants=_AGENTS, problems=BALANCED, rule_problems=BALANCED, num_batches=300),
        "paper": HeadScaling(variants=_AGENTS),
    },
    minutes={"smoke": 0.2, "laptop": 1.5, "paper": 15},
    caption=(
        "Agents unchanged, and with their mean predictions through the head (white); the rule for each alpha was "
        "fitted on problems with other seeds."
    ),
    claims=(
        Claim(
            "testbed_mean-combined",
            "The epinet's mean prediction through the head is not above the epinet's own joint prediction.",
            "joint divergence minus the epinet's own, tau = 10",
            lambda rows: minus(scores(rows), "epinet + head", "epinet"),
            at_most(0),
        ),
        Claim(
            "testbed_mean-combined-mlp",
            "The epinet's mean prediction through the head is below the network's through the head.",
            "joint divergence minus that of the network with the head, tau = 10",
            lambda rows: minus(scores(rows), "epinet + head", "mlp + head"),
            at_most(0),
        ),
        Claim(
            "testbed_mean-ensemble",
            "The mean prediction of ten particles with priors through the head is not above their joint prediction.",
            "joint divergence minus the ensemble's own, tau = 10",
            _ensemble,
            at_most(0),
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(4.5, 2.4))
    draw_scores(figure.subplots(), scores(rows))
    return figure
