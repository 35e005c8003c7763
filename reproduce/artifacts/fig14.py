"""Figure 14: the epinet on the smallest base, one hyperparameter at a time."""

import math

from matplotlib.figure import Figure

from ..artifact import Tolerance
from ..claims import Claim, Difference, RelativeChange, Select, at_least, at_most, select
from ..configs.imagenet import Ablation, BankStudy
from ..configs.images import ABLATION_ROWS, PAIRS, ImageStudy, tuned_value
from ..stats import SEEDS, Paired
from ..style import AGENTS, MUTED, set_log_scale
from . import _imagenet
from ._images import LOSSES, METRICS, Rows, image_artifact, mean_of

_DEFAULT = select(row="default")


def _at(row: str, value: float) -> Select:
    """Return the epinets with another value of one hyperparameter."""
    return select(row=row, value=value)


def _claims(default: Select, conv: Select, over: Paired) -> tuple[Claim, ...]:
    """Return the claims.

    Args:
        default: the rows of the recipe itself.
        conv: those with a large scale of the convolutional prior.
        over: what means are over.
    """
    return (
        Claim(
            "fig14-index",
            "A larger index dimension improves joint predictions.",
            "joint log-loss, 16 - 2",
            Difference("joint", _at("index dimension", 16), _at("index dimension", 2), over),
            at_most(0),
        ),
        Claim(
            "fig14-layers",
            "Another hidden layer makes joint predictions worse.",
            "joint log-loss, two layers - one",
            Difference("joint", _at("hidden layers", 2), default, over),
            at_least(0),
        ),
        Claim(
            "fig14-matched",
            "Too large a scale of the matched prior hurts.",
            "joint log-loss, scale 5 - default",
            Difference("joint", _at("matched prior scale", 5.0), default, over),
            at_least(0),
        ),
        Claim(
            "fig14-conv",
            "Too large a scale of the convolutional prior hurts.",
            "joint log-loss, scale 5 - default",
            Difference("joint", conv, default, over),
            at_least(0),
        ),
        Claim(
            "fig14-decay",
            "A large L2 decay improves joint predictions.",
            "joint log-loss, decay 0.01 - default",
            Difference("joint", _at("L2 decay", 1e-2), default, over),
            at_most(0),
        ),
        Claim(
            "fig14-decay-marginal",
            "A large L2 decay makes marginal predictions slightly worse.",
            "marginal log-loss, decay 0.01 - default",
            Difference("marginal", _at("L2 decay", 1e-2), default, over),
            at_least(0),
        ),
        Claim(
            "fig14-samples",
            "The number of index samples per step does not matter much.",
            "largest relative difference in joint log-loss from the default",
            RelativeChange("joint", select(row="index samples"), default, over, each="value"),
            at_most(0.15),
        ),
        Claim(
            "fig14-smoothing",
            "Label smoothing does not matter much.",
            "largest relative difference in joint log-loss from the default",
            RelativeChange("joint", select(row="label smoothing"), default, over, each="value"),
            at_most(0.15),
        ),
        Claim(
            "fig14-cold",
            "A cold temperature after training improves joint predictions.",
            "joint log-loss, temperature 0.5 - 1",
            Difference("joint", _at("temperature", 0.5), default, over),
            at_most(0),
        ),
    )


def _draw_from_scratch(rows: Rows, *, config: ImageStudy | None = None) -> Figure:
    """Draw the three losses for each factor; a dotted line marks the value of the other rows.

    Args:
        rows: the results.
        config: what they are results of; by default the protocol of a laptop.
    """
    recipe = PAIRS.epinet if config is None else config.protocol.epinet
    shown = [row for row in ABLATION_ROWS if any(r["row"] == row for r in rows)]
    figure = Figure(figsize=(6.75, 1.5 * max(len(shown), 2)))
    axes = figure.subplots(len(shown), 3, squeeze=False)
    for line, row in zip(axes, shown, strict=True):
        tuned = tuned_value(recipe, row)
        values = sorted({r["value"] for r in rows if r["row"] == row} | {tuned})
        for ax, (metric, words) in zip(line, METRICS.items(), strict=True):
            points = [
                mean_of(rows, metric, row="default") if value == tuned else mean_of(rows, metric, row=row, value=value)
                for value in values
            ]
            bars = [0.0 if math.isnan(error) else error for _, error in points]
            look = AGENTS["epinet"].line(label=None, markersize=3.5)
            ax.errorbar(range(len(values)), [mean for mean, _ in points], yerr=bars, capsize=2, **look)
            ax.axvline(values.index(tuned), color=MUTED, linewidth=1.0, linestyle=":", zorder=1)
            ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
            ax.set_xlabel(row)
            ax.set_ylabel(words.split(",")[0], fontsize=7)
            ax.margins(y=0.2)
    return figure


_FROM_SCRATCH = image_artifact(
    title="The image epinet, one hyperparameter at a time",
    label="fig:imagenet_ablation",
    protocol=PAIRS,
    dataset="imagenet",
    parts=("ablation",),
    minutes={"smoke": 0.5, "laptop": 3, "paper": 35},
    data="digit pairs instead of ImageNet, MLPs instead of ResNets",
    draws_config=True,
    # Two machines that round differently were up to 0.11 apart in a few epinets of one seed.
    tolerances={**LOSSES, "joint": Tolerance(absolute=0.3, relative=0.15)},
    caption="Dotted lines mark the default values.",
    place="Appendix G.5, Figure 14",
    claims=_claims(_DEFAULT, _at("conv prior scale", 5.0), SEEDS),
    draw=_draw_from_scratch,
)

_STUDY = BankStudy(first_parts=Ablation().parts)

ARTIFACT = _imagenet.bank_artifact(
    _FROM_SCRATCH,
    config=_STUDY,
    minutes=3.6,
    caption=(
        "The epinet on the largest network of the bank, the paper's smallest, judged on two of the folds at the "
        "temperature of training. Dotted lines mark the default values. The convolutional prior reads pixels, of "
        "which a bank of outputs has none; `rep_conv` measures it where the images are at hand."
    ),
    claims=_claims(_DEFAULT, _imagenet.NOT_AT_HAND, _imagenet.PER_BLOCK),
)


def draw(rows: Rows) -> Figure:
    """Draw the three losses for each factor, from the bank; a dotted line marks the value of the other rows."""
    recipe = _STUDY.bank.recipe
    defaults = {
        "index dimension": recipe.index_dim,
        "hidden layers": len(recipe.hidden),
        "matched prior scale": recipe.prior_scale,
        "conv prior scale": 0.0,
        "L2 decay": recipe.l2,
        "index samples": recipe.num_index_samples,
        "label smoothing": recipe.label_smoothing,
        "temperature": 1.0,
    }
    figure = Figure(figsize=(6.75, 1.5 * len(ABLATION_ROWS)))
    for line, row in zip(figure.subplots(len(ABLATION_ROWS), 3), ABLATION_ROWS, strict=True):
        values = sorted({own["value"] for own in rows if own["row"] == row} | {defaults[row]})
        for ax, (metric, words) in zip(line, METRICS.items(), strict=True):
            groups = [(_DEFAULT if value == defaults[row] else _at(row, value))(rows) for value in values]
            points = [_imagenet.point(own, "block", metric) for own in groups]
            means, bars = [mean for _, mean, _ in points], [error for _, _, error in points]
            look = AGENTS["epinet"].line(label=None, markersize=3.5)
            ax.errorbar(range(len(values)), means, yerr=bars, capsize=2, **look)
            ax.axvline(values.index(defaults[row]), color=MUTED, linewidth=1.0, linestyle=":", zorder=1)
            ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
            ax.set_xlabel(row if len(values) > 1 else f"{row}: needs pixels")
            ax.set_ylabel(words.split(",")[0], fontsize=7)
            ax.margins(y=0.2)
            if max(means) > 4 * min(means):
                set_log_scale(ax)
    return figure
