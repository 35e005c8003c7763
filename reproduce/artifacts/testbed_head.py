"""The Pitman-Yor head on the Neural Testbed: divergence of marginal predictions that one number makes joint."""

from matplotlib.figure import Figure

from ..alpha_rule import accepted_agents, alpha_of, fit, minus, scores
from ..artifact import Artifact
from ..claims import Claim, at_least, at_most
from ..configs.testbed import BALANCED
from ..configs.testbed_head import HeadScaling
from ..stats import UNKNOWN, Measurement, Rows, values_of
from ..style import INK
from ._head import HEAD, draw_scores


def _slope(rows: Rows) -> Measurement:
    """Return the rule's slope; a single temperature says nothing about it."""
    return Measurement(fit(rows, "mlp")[1]) if len(values_of(rows, "temperature")) > 1 else UNKNOWN


ARTIFACT = Artifact(
    **HEAD,
    title="One number on a conventional network: divergence of the Pitman-Yor head",
    tiers={
        "smoke": HeadScaling(problems=(16, 17), rule_problems=(16, 17), num_batches=20, num_samples=100),
        "laptop": HeadScaling(problems=BALANCED, rule_problems=BALANCED, num_batches=300),
        "paper": HeadScaling(),
    },
    minutes={"smoke": 0.1, "laptop": 0.5, "paper": 3},
    caption=(
        "Left, a plain network without and with the head, alpha by a rule fitted on problems with other seeds; "
        "other agents are those of Figure 5. Right, the rule, over the labels' temperature."
    ),
    claims=(
        Claim(
            "testbed_head-epinet",
            "A plain network with the exact head, alpha by a rule fitted on other problems, is not above the epinet.",
            "joint divergence minus that of Figure 5's epinet, tau = 10",
            lambda rows: minus([*scores(rows), *accepted_agents(rows)], "mlp + head", "epinet"),
            at_most(0),
        ),
        Claim(
            "testbed_head-mlp",
            "The head lowers the joint divergence of the network that it is put on.",
            "joint divergence minus the network's own, tau = 10",
            lambda rows: minus(scores(rows), "mlp + head", "mlp"),
            at_most(0),
        ),
        Claim(
            "testbed_head-rule",
            "Labels that are noisier have a larger aleatoric share.",
            "slope of the logit of alpha in the logarithm of the labels' temperature",
            _slope,
            at_least(0),
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
