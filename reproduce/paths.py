"""Where things are in the output folder."""

from dataclasses import dataclass
from pathlib import Path

REFERENCE = Path(__file__).with_name("reference")
"""The accepted CSVs."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """The output folder of one tier."""

    root: Path
    tier: str

    def record(self, artifact: str, unit: str) -> Path:
        """Return the path of the record of a run."""
        return self.root / self.tier / "records" / artifact / f"{unit}.json"

    @property
    def cache(self) -> Path:
        """The folder for what units share."""
        return self.root / self.tier / "cache"

    def csv(self, artifact: str) -> Path:
        """Return the path of the CSV of an artifact."""
        return self.root / self.tier / "csv" / f"{artifact}.csv"

    def figure(self, artifact: str, kind: str) -> Path:
        """Return the path of a figure of this kind."""
        return self.root / self.tier / "figures" / f"{artifact}.{kind}"

    def claims(self, kind: str) -> Path:
        """Return the path of the ledger of this kind."""
        return self.root / self.tier / f"claims.{kind}"
