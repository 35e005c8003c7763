"""Where things are in the output folder."""

from dataclasses import dataclass
from pathlib import Path

from .configs.image_paper import DEFAULT, Variant

REFERENCE = Path(__file__).with_name("reference")
"""The accepted CSVs."""

LICENSES = Path(__file__).with_name("licenses.toml")
"""The terms of all data, weights and derived arrays."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """The output folder of one tier, or of another data set or preset at a tier: records of these do not mix."""

    root: Path
    tier: str
    variant: Variant = DEFAULT

    @property
    def folder(self) -> Path:
        """The folder."""
        return self.root / "-".join([self.tier, *([self.variant.name] if self.variant.name else [])])

    def networks(self, artifact: str, digest: str) -> Path:
        """Return the folder of networks that experiments of this digest keep."""
        return self.folder / "networks" / f"{artifact}-{digest}"

    def record(self, artifact: str, unit: str) -> Path:
        """Return the path of the record of a run."""
        return self.folder / "records" / artifact / f"{unit}.json"

    @property
    def cache(self) -> Path:
        """The folder for what units share."""
        return self.root / self.tier / "cache"

    def csv(self, artifact: str) -> Path:
        """Return the path of the CSV of an artifact."""
        return self.folder / "csv" / f"{artifact}.csv"

    def figure(self, artifact: str, kind: str) -> Path:
        """Return the path of a figure of this kind."""
        return self.folder / "figures" / f"{artifact}.{kind}"

    def claims(self, kind: str) -> Path:
        """Return the path of the ledger of this kind."""
        return self.folder / f"claims.{kind}"
