"""Beyond the paper: the divergence of agents whose paper and code differ, in both readings."""

import math

from matplotlib.figure import Figure

from ..artifact import Artifact
from ..claims import Claim, RelativeChange, equals
from ..configs.testbed import Departures, departure_variants, variant_of
from ..stats import PROBLEMS, Rows
from ..style import AGENTS, MUTED
from ._testbed import TESTBED, epinet, labels_of, mean_of

ARTIFACT = Artifact(
    title="Where the testbed's paper and code differ: what it does to the divergence",
    session="testbed",
    order=1,
    tiers={
        "smoke": Departures(
            variants=(variant_of("epinet"), variant_of("epinet", initializer="truncated_normal")),
            problems=(16, 17),
            num_batches=20,
        ),
        "laptop": Departures(variants=departure_variants(chain=20_000), problems=(71, 72, 91, 92), num_batches=300),
        "paper": Departures(),
    },
    **TESTBED,
    minutes={"smoke": 0.2, "laptop": 0.6, "paper": 25},
    data="Neural Testbed",
    caption="Dotted lines mark the agents of Figure 5; $lambda$ is the number of examples per input dimension.",
    claims=(
        Claim(
            "testbed_departures-initializer",
            "Glorot's initialization or the truncated normal of the authors' code makes no difference to the epinet.",
            "relative difference in joint KL, truncated normal - Glorot",
            RelativeChange("joint", epinet(initializer="truncated_normal"), epinet(), PROBLEMS),
            equals(0, tolerance=0.15),
        ),
        Claim(
            "testbed_departures-stop-gradient",
            "To stop the gradient of the features, or not as in the authors' code, makes no difference to the epinet.",
            "relative difference in joint KL, not stopped - stopped",
            RelativeChange("joint", epinet(stop_gradient=False), epinet(), PROBLEMS),
            equals(0, tolerance=0.15),
        ),
    ),
)

_METRICS = {"marginal": "marginal KL ($\\tau = 1$)", "joint": "joint KL ($\\tau = 10$)"}
_WORDS = {
    "initializer=truncated_normal": "truncated normal",
    "stop_gradient=False": "no stop-gradient",
    "prior_variance=1.0": "prior variance 1",
    "prior_variance=10.0": "prior variance 10",
}
_AS_EVERYWHERE = {"epinet": "as in the paper", "sgmcmc": "prior variance 0.1"}


def _words(agent: str, label: str) -> str:
    """Return what a variant is, as its line in the figure."""
    known = [words for change, words in _WORDS.items() if label.endswith(f"-{change}")]
    return f"{agent}, {known[0] if known else _AS_EVERYWHERE[agent]}"


def _lines(rows: Rows) -> list[tuple[str, str, str, Rows]]:
    """Return words, agent, label and rows of each line: epinets, then `sgmcmc` beside the epinet on its problems."""
    chains = {row["problem"] for row in rows if row["agent"] == "sgmcmc"}
    shared = [row for row in rows if row["problem"] in chains]
    most = max((row["data_ratio"] for row in shared), default=0)
    where = f", $\\lambda \\leq {most:g}$" if len(shared) < len(rows) else ""
    epinets = [(_words("epinet", label), "epinet", label, rows) for label in labels_of(rows, "epinet")]
    beside = [(f"{words}{where}", agent, label, shared) for words, agent, label, _ in epinets[:1] if where]
    samples = [(_words("sgmcmc", label) + where, "sgmcmc", label, shared) for label in labels_of(shared, "sgmcmc")]
    return [*epinets, *(beside if samples else []), *samples]


def draw(rows: Rows) -> Figure:
    """Draw one line per variant; a dotted line marks the epinet as it is everywhere else, and `sgmcmc` likewise."""
    lines = _lines(rows)
    places = range(len(lines))[::-1]
    figure = Figure(figsize=(6.75, 0.3 * len(lines) + 0.8))
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (metric, title) in zip(axes, _METRICS.items(), strict=True):
        for place, (words, agent, label, own) in zip(places, lines, strict=True):
            mean, error = mean_of(own, label, metric)
            look = AGENTS[agent].line(label=None, linestyle="", markersize=5)
            ax.errorbar([mean], [place], xerr=[0.0 if math.isnan(error) else error], capsize=2, **look)
            if _AS_EVERYWHERE[agent] in words:
                # Beside the lines of the same problems.
                same = [other for other, line in zip(places, lines, strict=True) if line[3] is own]
                ax.vlines(mean, min(same) - 0.4, max(same) + 0.4, color=MUTED, linewidth=0.8, linestyle=":", zorder=0)
        ax.set_xlabel(title)
        ax.set_xlim(left=0)
        ax.set_ylim(-0.6, len(lines) - 0.4)
    axes[0].set_yticks(list(places), [words for words, *_ in lines])
    return figure
