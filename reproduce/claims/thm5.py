"""Claims of Theorem 5.

Counts of labels are compared with exact probabilities by exact binomial tests, valid at any number of samples. All
p-values of a claim are adjusted by Holm's method, whatever their dependence: a true claim is rejected at most once in a
thousand runs.
"""

from collections.abc import Sequence

from ..record import Row
from .ledger import Claim, Measurement
from .rules import AtLeast, AtMost, Equals
from .select import Measure, where
from .thm3 import holm

LEVEL = 0.001
"""The declared level, over all tests of a claim."""

_LOCATION = "Ours, Theorem 5"


def _difference(*quantities: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        chosen = [row for row in where(rows, kind="identity") if row["quantity"] in quantities]
        return Measurement(value=max(row["difference"] for row in chosen))

    return measure


def _smallest(rows: Sequence[Row], head: str, statistics: Sequence[str], **wanted: float) -> float:
    chosen = where(rows, kind="test", head=head, **wanted)
    return holm([row["p"] for row in chosen if row["statistic"] in statistics])[0]


def _agreement(*statistics: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        return Measurement(value=_smallest(rows, "right", statistics))

    return measure


def _rejection(head: str, *statistics: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        alphas = {row["alpha"] for row in where(rows, kind="test")}
        return Measurement(value=max(_smallest(rows, head, statistics, alpha=alpha) for alpha in alphas))

    return measure


def _ends(rows: Sequence[Row]) -> Measurement:
    """Return how far the tables at the smallest and the largest alpha are from those of Figure 1."""
    tables = where(rows, kind="table")
    alphas = [row["alpha"] for row in tables]
    certain = (
        abs(row["probability"] - 0.5 * (row["y1"] == row["y2"])) for row in tables if row["alpha"] == min(alphas)
    )
    chance = (abs(row["probability"] - 0.25) for row in tables if row["alpha"] == max(alphas))
    return Measurement(value=max(*certain, *chance))


THM5: tuple[Claim, ...] = (
    Claim(
        id="thm5-noise",
        statement="The noise of the head is positive stable: its Laplace transform is exp(-t^alpha).",
        location=_LOCATION,
        quantity="largest difference, by quadrature",
        measure=_difference("noise"),
        rule=Equals(target=0.0, tolerance=1e-6),
    ),
    Claim(
        id="thm5-marginal",
        statement="The average prediction of the head is the prediction of its base, whatever alpha.",
        location=_LOCATION,
        quantity="largest difference of a probability, by quadrature",
        measure=_difference("marginal"),
        rule=Equals(target=0.0, tolerance=1e-9),
    ),
    Claim(
        id="thm5-two-labels",
        statement="A second label repeats the first with probability 1 - alpha and is a fresh draw otherwise.",
        location=_LOCATION,
        quantity="largest difference of a cell of the table of two labels",
        measure=_difference("two labels"),
        rule=Equals(target=0.0, tolerance=1e-9),
    ),
    Claim(
        id="thm5-urn",
        statement="Labels at one input follow the Pitman-Yor urn: by quadrature and by all partitions into clusters.",
        location=_LOCATION,
        quantity="largest difference of a probability",
        measure=_difference("urn, quadrature", "urn, partitions"),
        rule=Equals(target=0.0, tolerance=1e-9),
    ),
    Claim(
        id="thm5-consistent",
        statement="The closed forms are one joint prediction: they sum to one, and over one label more to fewer.",
        location=_LOCATION,
        quantity="largest difference",
        measure=_difference("sum to one", "one more label"),
        rule=Equals(target=0.0, tolerance=1e-9),
    ),
    Claim(
        id="thm5-ends",
        statement="The two tables of Figure 1 are the two ends of alpha.",
        location=f"{_LOCATION}, and Figure 1",
        quantity="largest distance of a cell, at alpha = 0.001 and 1",
        measure=_ends,
        rule=Equals(target=0.0, tolerance=0.001),
    ),
    Claim(
        id="thm5-samples-marginal",
        statement="Labels that are drawn from the coherent head have the base's probabilities at every input.",
        location=_LOCATION,
        quantity="smallest p-value of exact tests, adjusted for their number",
        measure=_agreement("marginal"),
        rule=AtLeast(bound=LEVEL),
    ),
    Claim(
        id="thm5-samples-joint",
        statement="Two and five labels that are drawn at one index have the probabilities of the urn.",
        location=_LOCATION,
        quantity="smallest p-value of exact tests, adjusted for their number",
        measure=_agreement("two labels", "5 labels"),
        rule=AtLeast(bound=LEVEL),
    ),
    Claim(
        id="thm5-power-alpha",
        statement="The tests can fail: noise of an alpha that is 10 percent too large is rejected by its marginals.",
        location="Ours, a control",
        quantity="largest p-value over alpha, adjusted for their number",
        measure=_rejection("alpha off", "marginal"),
        rule=AtMost(bound=LEVEL),
    ),
    Claim(
        id="thm5-power-width",
        statement="The tests can fail: fields with a deviation that is 10 percent too large are rejected.",
        location="Ours, a control",
        quantity="largest p-value over alpha, adjusted for their number",
        measure=_rejection("too wide", "marginal"),
        rule=AtMost(bound=LEVEL),
    ),
    Claim(
        id="thm5-power-shared",
        statement="The tests can fail: noise that classes share is rejected.",
        location="Ours, a control",
        quantity="largest p-value over alpha, adjusted for their number",
        measure=_rejection("shared noise", "marginal"),
        rule=AtMost(bound=LEVEL),
    ),
    Claim(
        id="thm5-power-table",
        statement="The tests can fail: the urn of an alpha that is 0.05 larger is rejected.",
        location="Ours, a control",
        quantity="largest p-value over alpha, adjusted for their number",
        measure=_rejection("table of alpha + 0.05", "two labels", "5 labels"),
        rule=AtMost(bound=LEVEL),
    ),
)
