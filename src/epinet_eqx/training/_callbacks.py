"""Callbacks that receive the metrics of training."""

import abc
import contextlib
import csv
import importlib
import io
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from .._files import StrPath, atomic_file

# How each line of metrics begins.
_START = '{"step": '
_HEADER = ["step", "metric", "value"]


class AbstractCallback(abc.ABC):
    """Receives metrics while a model is trained; only the first process calls it."""

    @abc.abstractmethod
    def start(self, step: int) -> None:
        """Training starts or resumes after this number of steps: discard metrics logged after `step`."""

    @abc.abstractmethod
    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics after this number of steps."""

    @abc.abstractmethod
    def close(self) -> None:
        """Training has ended, successfully or not."""


class _FunctionCallback(AbstractCallback):
    """Calls a function of the step and the metrics."""

    def __init__(self, function: Callable[[int, Mapping[str, float]], Any]):
        self._function = function

    def start(self, step: int) -> None:
        """Do nothing."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Call the function."""
        self._function(step, metrics)

    def close(self) -> None:
        """Do nothing."""


Callback: TypeAlias = AbstractCallback | Callable[[int, Mapping[str, float]], Any]


def check_callbacks(callbacks: Callback | Sequence[Callback]) -> tuple[AbstractCallback, ...]:
    """Return callbacks, of which functions `(step, metrics)` and a single one may be given too."""
    found: list[AbstractCallback] = []
    for number, callback in enumerate(callbacks if isinstance(callbacks, Sequence) else (callbacks,)):
        if isinstance(callback, AbstractCallback):
            found.append(callback)
        elif callable(callback):
            found.append(_FunctionCallback(callback))
        else:
            raise ValueError(
                f"`callbacks[{number}]` must be a callback, such as `CsvMetrics(path)`, or a function of the step and "
                f"the metrics; got {type(callback).__name__}."
            )
    return tuple(found)


def _require(package: str, user: str) -> Any:
    """Return an optional package; raise if it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"`{user}` needs the package {package}: pip install {package}.") from error


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    """Name the file in an error of writing to it, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(f"Metrics could not be written to {str(path)!r}; {error}.") from error


def _lines_until(path: pathlib.Path, step: int) -> list[str]:
    """Return the complete lines of a file up to `step`; raise if they are not all metrics, or it would be lost."""
    kept = []
    lines = path.read_text(errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            # A killed run may leave half a line at the end.
            if number == len(lines) and (line.startswith(_START) or _START.startswith(line)):
                break
            record = None
        at = record.get("step") if isinstance(record, dict) else None
        if not isinstance(at, int):
            raise ValueError(
                f"`path` must be a new file, or one that `JsonlMetrics` wrote; line {number} of {str(path)!r} is not "
                "one of its lines."
            )
        if at <= step:
            kept.append(line + "\n")
    return kept


def _rows_until(path: pathlib.Path, step: int) -> list[list[str]]:
    """Return the complete rows of a file up to `step`; raise if they are not all metrics, or it would be lost."""
    text = path.read_text(errors="replace")
    # A killed run may leave half a row at the end.
    rows = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    for number, row in enumerate(rows, start=1):
        if row != _HEADER if number == 1 else len(row) != 3 or not row[0].isdigit():
            raise ValueError(
                f"`path` must be a new file, or one that `CsvMetrics` wrote; line {number} of {str(path)!r} is not one "
                "of its rows."
            )
    if text and not rows:
        raise ValueError(f"`path` must be a new file, or one that `CsvMetrics` wrote; {str(path)!r} has no header.")
    return [row for row in rows[1:] if int(row[0]) <= step]


class AbstractMetricsFile(AbstractCallback):
    """Metrics in a file, which is the same for a resumed run as without interruption."""

    def __init__(self, path: StrPath):
        """Initialize with the file, which is created if it does not exist."""
        self._path = pathlib.Path(path)
        self._file: Any = None

    @abc.abstractmethod
    def _kept(self, step: int) -> str:
        """Return the initial content: the lines that an earlier run logged up to `step`."""

    def start(self, step: int) -> None:
        """Discard lines logged after `step`, and open the file."""
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # The new file replaces the old one in one move, so a kill in between loses nothing.
        with atomic_file(self._path) as new:
            new.write_text(self._kept(step), newline="")
        self._file = self._path.open("a", newline="")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            # Data refused by a full disk are still in the buffer; the error was raised when they were refused.
            with contextlib.suppress(OSError):
                file.close()


class JsonlMetrics(AbstractMetricsFile):
    """Metrics as lines of JSON, each with its `step`; values that are not finite become `null`.

    A resumed run first removes the lines after its checkpoint.
    """

    def _kept(self, step: int) -> str:
        """Return the lines up to `step`."""
        return "".join(_lines_until(self._path, step) if self._path.exists() else [])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one line and flush it."""
        values = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        with _naming(self._path):
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            self._file.flush()


class CsvMetrics(AbstractMetricsFile):
    """Metrics as rows `step,metric,value` of a CSV file, one per metric.

    A resumed run first removes the rows after its checkpoint. With pandas, `frame.pivot(index="step", columns="metric",
    values="value")` has one row per step.
    """

    def _kept(self, step: int) -> str:
        """Return the header and the rows up to `step`."""
        content = io.StringIO(newline="")
        csv.writer(content).writerows([_HEADER, *(_rows_until(self._path, step) if self._path.exists() else [])])
        return content.getvalue()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row per metric and flush them."""
        with _naming(self._path):
            csv.writer(self._file).writerows([step, name, value] for name, value in metrics.items())
            self._file.flush()


class TensorBoard(AbstractCallback):
    """Metrics for TensorBoard, written by the package tensorboardX."""

    def __init__(self, folder: StrPath):
        """Initialize with the folder of the event files."""
        self._package = _require("tensorboardX", "TensorBoard")
        self._folder = os.fspath(folder)
        self._writer: Any = None

    def start(self, step: int) -> None:
        """Open the event file, and hide later steps that earlier files recorded."""
        self._writer = self._package.SummaryWriter(self._folder, purge_step=step + 1)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write each metric as a scalar."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases(AbstractCallback):
    """Metrics for Weights & Biases; a run with an `id` is resumed when training is."""

    def __init__(self, project: str, *, id: str | None = None, config: Mapping[str, Any] | None = None):
        """Initialize with the project, the name of the run, and the configuration to record."""
        self._package = _require("wandb", "WeightsAndBiases")
        self._options = {"project": project, "id": id, "config": dict(config or {})}
        self._run: Any = None

    def start(self, step: int) -> None:
        """Start or resume the run."""
        self._run = self._package.init(**self._options, resume="allow")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """End the run."""
        if self._run is not None:
            self._run.finish()
