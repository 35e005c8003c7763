"""A claim, its measurement, and its line in the ledger."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..record import Row
from .rules import Rule, Verdict


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A number from the rows of an artifact, with its standard error; zero for an exact number."""

    value: float
    standard_error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper, or one that its theory needs, as a check.

    Attributes:
        id: the artifact's id and a name.
        statement: the sentence, in our words.
        location: where the paper says it.
        quantity: what is measured.
        measure: computes it from the rows of the CSV.
        rule: decides.
    """

    id: str
    statement: str
    location: str
    quantity: str
    measure: Callable[[Sequence[Row]], Measurement]
    rule: Rule

    @property
    def artifact(self) -> str:
        """The id of the artifact whose CSV decides."""
        return self.id.partition("-")[0]


@dataclass(frozen=True, kw_only=True)
class LedgerLine:
    """A claim with its verdict."""

    claim: Claim
    measurement: Measurement
    verdict: Verdict


def judge(claim: Claim, rows: Sequence[Row]) -> LedgerLine:
    """Measure a claim and apply its rule."""
    measurement = claim.measure(rows)
    verdict = claim.rule(measurement.value, measurement.standard_error)
    return LedgerLine(claim=claim, measurement=measurement, verdict=verdict)
