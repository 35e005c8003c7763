"""How far a run is and how much time it needs, one line per artifact."""

import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from .accepted import read_manifest
from .artifact import Artifact
from .paper.words import duration
from .paths import REFERENCE
from .record import Job, Key, Records

# Seconds between two lines about the same artifact.
_INTERVAL = 10.0

# The prior weight of the expected durations, as a fraction of all work.
_PRIOR = 0.05

# Time already spent on running units reduces their estimate by at most this fraction.
_MOST = 0.6


def expected_seconds(artifact: Artifact, tier: str) -> float:
    """Return the serial time of an artifact: as last confirmed, else as accepted, else as declared."""
    origin = read_manifest(REFERENCE).get(f"{tier}/{artifact.id}.csv", {})
    recorded = origin.get("confirmed", {}).get("seconds") or origin.get("seconds")
    return max(recorded or 60 * artifact.minutes[tier], 0.1)


class TimeLeft:
    """An estimate of the time that is left.

    Runs differ in length by orders of magnitude, so the fraction of completed runs says little. Each run counts with
    its expected seconds, times the measured slowdown of completed runs, divided by the number of workers. The time
    that workers have spent on unfinished runs is subtracted.
    """

    def __init__(self, expected: Mapping[Key, float], *, workers: int, clock: Callable[[], float] = time.monotonic):
        """Initialize, and start the clock.

        Args:
            expected: seconds of each run to compute.
            workers: number of runs in parallel.
            clock: returns seconds.
        """
        self._left = dict(expected)
        self._workers = workers
        self._clock = clock
        self._start = clock()
        self._measured = 0.0
        # At first, only the expectations are known.
        self._prior = _PRIOR * sum(expected.values())
        self._done = 0.0

    def add(self, key: Key, seconds: float) -> None:
        """Record a completed run; a run repeated after a loss counts once."""
        if key in self._left:
            self._done += self._left.pop(key)
            self._measured += seconds

    def seconds(self) -> float:
        """Return the seconds that are left."""
        if not self._left:
            return 0.0
        slowness = (self._measured + self._prior) / (self._done + self._prior)
        work = slowness * sum(self._left.values())
        under_way = slowness * sum(itertools.islice(self._left.values(), self._workers))
        spent = max(0.0, (self._clock() - self._start) * self._workers - self._measured)
        return (work - min(spent, _MOST * under_way)) / min(self._workers, len(self._left))


class Progress:
    """Reports the progress of each artifact."""

    def __init__(self, say: Callable[[str], None], *, workers: int = 1, show: bool = True):
        """Initialize.

        Args:
            say: prints a line.
            workers: number of groups in parallel.
            show: whether to report progress; recomputed units are always reported.
        """
        self._say = say
        self._workers = workers
        self._show = show
        self._total: dict[str, int] = {}
        self._left: dict[str, set[Key]] = {}
        self._spoke: dict[str, float] = {}

    def begin(self, chosen: Sequence[Artifact], records: Records, missing: Mapping[Key, Job]) -> None:
        """Announce the work.

        Args:
            chosen: the artifacts.
            records: where their records are.
            missing: the runs that will be computed.
        """
        keys = {artifact.id: [job.key for job in records.jobs(artifact)] for artifact in chosen}
        self._total = {name: len(own) for name, own in keys.items()}
        self._left = {name: set(own) & set(missing) for name, own in keys.items()}
        expected: dict[Key, float] = {}
        for artifact in chosen:
            share = expected_seconds(artifact, records.output.tier) / len(keys[artifact.id])
            expected |= {key: share for key in self._left[artifact.id] if key not in expected}
        self._time = TimeLeft(expected, workers=self._workers)
        total = len(set().union(*keys.values()))
        if len(missing) < total:
            self._say(f"{total - len(missing)} of {total} units have a record already; `--force` computes them again.")
        for job in missing.values():
            if reason := records.look_up(job).reason:
                self._say(f"{job.artifact} {job.unit} is computed again: {reason}.")
        if self._show and missing:
            self._say(f"{len(missing)} units to compute, about {duration(self._time.seconds())}.")

    def add(self, key: Key, seconds: float) -> None:
        """Record a completed unit, and report it for each of its artifacts, at intervals."""
        self._time.add(key, seconds)
        for name, left in self._left.items():
            if key in left:
                left.remove(key)
                self._tell(name, left)

    def _tell(self, name: str, left: Collection[Key]) -> None:
        """Report the progress of an artifact, unless it was reported just now."""
        now = time.monotonic()
        is_due = name not in self._spoke or now - self._spoke[name] >= _INTERVAL
        if self._show and (is_due or not left):
            self._spoke[name] = now
            rest = self._time.seconds()
            words = f", about {duration(rest)} left" if rest else ""
            self._say(f"{name}: {self._total[name] - len(left)} of {self._total[name]} units{words}")
