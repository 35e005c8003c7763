"""Rules that turn a number and its standard error into a verdict.

Each rule looks at the interval of `errors` standard errors around the measured value: the claim holds if all of the
interval agrees with it, does not hold if none of it does, and is undecided otherwise. A value without a standard error
is exact; `tolerance` allows for rounding, or says how close two quantities must be to count as equal.
"""

import enum
import math
from dataclasses import dataclass
from typing import Protocol


class Verdict(enum.Enum):
    """What a rule says of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"


class Rule(Protocol):
    """A declared criterion."""

    def __call__(self, value: float, standard_error: float) -> Verdict:
        """Return the verdict on a measured value."""
        ...

    def __str__(self) -> str:
        """Return the criterion in words."""
        ...


def _verdict(low: float, high: float, least: float, most: float) -> Verdict:
    """Return whether the interval `[low, high]` lies inside, outside or across `[least, most]`."""
    if math.isnan(low) or math.isnan(high):
        return Verdict.UNDECIDED
    if least <= low and high <= most:
        return Verdict.HOLDS
    return Verdict.FAILS if high < least or low > most else Verdict.UNDECIDED


def _margin(errors: float, tolerance: float) -> str:
    """Return the fine print of a rule."""
    return f"{errors:g} s.e." + (f", tolerance {tolerance:g}" if tolerance else "")


@dataclass(frozen=True, kw_only=True)
class AtLeast:
    """The value is at least a bound."""

    bound: float
    errors: float = 2.0
    tolerance: float = 0.0

    def __call__(self, value: float, standard_error: float) -> Verdict:
        """Return the verdict on a measured value."""
        margin = self.errors * standard_error
        return _verdict(value - margin, value + margin, self.bound - self.tolerance, math.inf)

    def __str__(self) -> str:
        """Return the criterion in words."""
        return f"at least {self.bound:g} ({_margin(self.errors, self.tolerance)})"


@dataclass(frozen=True, kw_only=True)
class AtMost:
    """The value is at most a bound."""

    bound: float
    errors: float = 2.0
    tolerance: float = 0.0

    def __call__(self, value: float, standard_error: float) -> Verdict:
        """Return the verdict on a measured value."""
        margin = self.errors * standard_error
        return _verdict(value - margin, value + margin, -math.inf, self.bound + self.tolerance)

    def __str__(self) -> str:
        """Return the criterion in words."""
        return f"at most {self.bound:g} ({_margin(self.errors, self.tolerance)})"


@dataclass(frozen=True, kw_only=True)
class Equals:
    """The value is a target, up to the tolerance: an equivalence test, not the mere absence of a difference."""

    target: float
    tolerance: float
    errors: float = 2.0

    def __call__(self, value: float, standard_error: float) -> Verdict:
        """Return the verdict on a measured value."""
        margin = self.errors * standard_error
        return _verdict(value - margin, value + margin, self.target - self.tolerance, self.target + self.tolerance)

    def __str__(self) -> str:
        """Return the criterion in words."""
        return f"equals {self.target:g} ({_margin(self.errors, self.tolerance)})"
