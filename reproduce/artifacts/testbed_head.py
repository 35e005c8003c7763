"""The Pitman-Yor head on the Neural Testbed: divergence of marginal predictions that one number makes joint."""

import math

from matplotlib.figure import Figure

from ..alpha_rule import accepted_agents, alpha_of, fit, minus, scores
from ..artifact import Artifact, Tolerance
from ..claims import Claim, at_least, at_most
from ..configs.testbed import BALANCED
from ..configs.testbed_head import HeadScaling
from ..stats import UNKNOWN, Measurement, Rows, values_of
from ..style import INK
from ._head import draw_scores

_LOCATION = "Ours, Theorem 5, on the problems of Section 5"


def _slope(rows: Rows) -> Measurement:
    """Return the rule's slope; a single temperature says nothing about it."""
    return Measurement(fit(rows, "mlp")[1]) if len(values_of(rows, "temperature")) > 1 else UNKNOWN


ARTIFACT = Artifact(
    title="One number on a conventional network: divergence of the Pitman-Yor head",
    session="testbed",
    order=1,
    seed=5,
    tiers={
        "smoke": HeadScaling(problems=(16, 17), rule_problems=(16, 17), num_batches=20, num_samples=100),
        "laptop": HeadScaling(problems=BALANCED, rule_problems=BALANCED, num_batches=300),
        "paper": HeadScaling(),
    },
    run="testbed_head:score",
    groups="groups",
    records="testbed",
    minutes={"smoke": 0.1, "laptop": 0.5, "paper": 3},
    data="Neural Testbed",
    caption=(
        "Left, a plain network as it is and with the head, alpha by a rule fitted on problems with other seeds; "
        "other agents are those of Figure 5. Right, the rule, over the labels' temperature."
    ),
    tolerances={
        "marginal": Tolerance(absolute=0.02, relative=0.1),
        "marginal_error": Tolerance(absolute=0.01, relative=0.2),
        "joint": Tolerance(absolute=0.1, relative=0.1),
        "joint_error": Tolerance(absolute=0.05, relative=0.2),
        "own_joint": Tolerance(absolute=0.1, relative=0.1),
        "own_joint_error": Tolerance(absolute=0.05, relative=0.2),
        "seconds": Tolerance(absolute=math.inf),
    },
    claims=(
        Claim(
            "testbed_head-epinet",
            "A plain network with the exact head, alpha by a rule fitted on other problems, is not above the epinet.",
            "joint divergence minus that of Figure 5's epinet, tau = 10",
            lambda rows: minus([*scores(rows), *accepted_agents(rows)], "mlp + head", "epinet"),
            at_most(0),
            location=_LOCATION,
        ),
        Claim(
            "testbed_head-mlp",
            "The head lowers the joint divergence of the network that it is put on.",
            "joint divergence minus the network's own, tau = 10",
            lambda rows: minus(scores(rows), "mlp + head", "mlp"),
            at_most(0),
            location=_LOCATION,
        ),
        Claim(
            "testbed_head-rule",
            "Labels that are noisier have a larger aleatoric share.",
            "slope of the logit of alpha in the logarithm of the labels' temperature",
            _slope,
            at_least(0),
            location=_LOCATION,
        ),
    ),
)

_STYLES = ("-", "--", "-.", ":")


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 2.7))
    left, right = figure.subplots(1, 2)
    draw_scores(left, [*scores(rows), *accepted_agents(rows)])
    rule = fit(rows, "mlp")
    grid = [10 ** (-2 + 2 * step / 40) for step in range(37)]
    for style, ratio in zip(_STYLES, sorted({row["data_ratio"] for row in rows}), strict=False):
        alphas = [alpha_of(rule, temperature, ratio) for temperature in grid]
        right.plot(grid, alphas, color=INK, linestyle=style, label=f"$\\lambda = {ratio:g}$")
    right.set_xscale("log")
    right.set_xlabel("temperature of the labels $\\rho$")
    right.set_ylabel("$\\alpha$ by the rule")
    right.set_ylim(0, 1)
    right.legend()
    return figure
