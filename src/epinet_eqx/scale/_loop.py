"""The loop of training at scale."""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import optax
from jax.sharding import Mesh

from .._checks import check_positive, num_examples
from .._keys import named_keys
from ..data import Loader
from ._callbacks import AbstractCallback
from ._checkpoints import Checkpoints
from ._errors import DataEndedError, DivergedError, TrainingPreempted
from ._evaluate import make_evaluation
from ._iterators import DataIterator, LoaderIterator
from ._mesh import data_mesh, global_batch, place
from ._objectives import AbstractObjective, Metrics
from ._progress import ImageBar
from ._signals import StopRequest
from ._state import ScaleState
from ._step import make_train_step

# Steps that the host may be ahead of the devices: enough to keep them busy, few enough to see a failure soon.
_STEPS_AHEAD = 2


class ScaleResult(NamedTuple):
    """The state after the last step, its held-out metrics, and which checkpoint has the best ones."""

    state: ScaleState
    validation: dict[str, float]
    best_step: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Times:
    """When to do what, by the number of steps made."""

    num_steps: int
    log_every: int
    eval_every: int | None
    checkpoint_every: int | None

    def __post_init__(self):
        """Raise unless all are positive."""
        for name, value in dataclasses.asdict(self).items():
            if value is not None:
                check_positive(name, value)

    def is_due(self, made: int, every: int | None) -> bool:
        """Return whether something that is done every so many steps, and at the end, is due."""
        return made == self.num_steps or (every is not None and made % every == 0)


class _Reporter:
    """Reads metrics from the devices a little later than they are computed, and tells of them."""

    def __init__(self, times: _Times, bar: ImageBar, callbacks: Sequence[AbstractCallback]):
        """Initialize with when and whom to tell."""
        self._times = times
        self._bar = bar
        self._callbacks = callbacks
        self._pending: collections.deque[tuple[int, Metrics]] = collections.deque()

    def add(self, made: int, metrics: Metrics, state: ScaleState) -> None:
        """Note the metrics of a step, and read those that must be there by now."""
        self._pending.append((made, metrics))
        self.settle(state, ahead=_STEPS_AHEAD)

    def settle(self, state: ScaleState, *, ahead: int = 0) -> None:
        """Read all metrics but those of the last `ahead` steps; raise if a step was not finite."""
        while len(self._pending) > ahead:
            made, metrics = self._pending.popleft()
            values = {name: float(value) for name, value in metrics.items()}
            if not values.pop("finite"):
                raise DivergedError(made - 1, values["loss"], state)
            if self._times.is_due(made, self._times.log_every):
                self._bar.show(f"loss {values['loss']:.4g}")
                self.tell(made, {**values, "images_per_second": self._bar.images_per_second})

    def tell(self, made: int, metrics: Mapping[str, float]) -> None:
        """Tell the callbacks."""
        for callback in self._callbacks:
            callback.log(made, metrics)


@contextlib.contextmanager
def _opened(callbacks: Sequence[AbstractCallback], step: int) -> Iterator[None]:
    """Start the callbacks, and close them however training ends."""
    with contextlib.ExitStack() as stack:
        for callback in callbacks:
            stack.callback(callback.close)
            callback.start(step)
        yield


def train(
    state: ScaleState,
    data: DataIterator | Loader | Iterator[Any],
    objective: AbstractObjective,
    *,
    optimizer: optax.GradientTransformation,
    num_steps: int,
    mesh: Mesh | None = None,
    shard_parameters: bool = False,
    accumulate: int = 1,
    ema_decay: float | None = None,
    evaluation: Callable[[], Iterable[Any]] | None = None,
    eval_every: int | None = None,
    checkpoints: Checkpoints | None = None,
    checkpoint_every: int | None = None,
    allow_changes: bool = False,
    callbacks: Sequence[AbstractCallback] = (),
    log_every: int = 10,
    progress: bool = True,
) -> ScaleResult:
    """Train a model on a mesh; if there is a checkpoint, go on from the latest as if nothing had happened.

    All processes of a run call it, each with its part of the data. SIGTERM and Ctrl-C end it after a whole step and,
    if there is a folder for checkpoints, one of that step.

    Args:
        state: the state before the first step, see `init_scale_state`. It is used up: go on with that of the result.
        data: the stream of batches: a `Loader`, an iterator of Grain, a `MemoryIterator`; without checkpoints, any
            iterator.
        objective: what is minimized; its `evaluate` gives the held-out metrics.
        optimizer: the optimizer that the state was made with.
        num_steps: number of steps, those before a checkpoint included.
        mesh: the mesh; all devices by default.
        shard_parameters: whether large arrays of the state are cut into shards, see `place`.
        accumulate: number of parts that a batch goes through in.
        ema_decay: decay of the moving averages, if the state has them; held-out metrics are then theirs.
        evaluation: returns this process's held-out batches, from the first one on at each call.
        eval_every: steps between evaluations; the last step is followed by one in any case.
        checkpoints: where checkpoints go; None for nowhere.
        checkpoint_every: steps between checkpoints; evaluations and the last step are followed by one in any case.
        allow_changes: whether to go on from a checkpoint of another key, batch size or data set, see `Checkpoints`.
        callbacks: where metrics go.
        log_every: steps between metrics of the training batches, which are those of a single step.
        progress: whether a progress bar is shown.

    Raises:
        DivergedError: the loss, its gradient or the parameters were not finite; no checkpoint of that was written.
        DataEndedError: the data ended too early.
        CheckpointError: a checkpoint could not be written or read; those before are as they were.
        TrainingPreempted: SIGTERM or Ctrl-C; says how to go on.
    """
    times = _Times(num_steps=num_steps, log_every=log_every, eval_every=eval_every, checkpoint_every=checkpoint_every)
    for name, every, needed, source in (
        ("eval_every", eval_every, "evaluation", evaluation),
        ("checkpoint_every", checkpoint_every, "checkpoints", checkpoints),
    ):
        if every is not None and source is None:
            raise ValueError(f"`{name}` must be left out without `{needed}`; got {every}.")
    stream = LoaderIterator(data) if isinstance(data, Loader) else data
    saved = stream if isinstance(stream, DataIterator) else None
    if checkpoints is not None and saved is None:
        raise ValueError(f"`data` must have `get_state` and `set_state` for checkpoints; got {type(data).__name__}.")
    mesh = data_mesh() if mesh is None else mesh
    state = place(state, mesh, shard_parameters=shard_parameters)
    if checkpoints is not None:
        if jax.process_index() == 0:
            checkpoints.clean()
        latest = checkpoints.latest_intact_step()
        if latest is not None:
            state = checkpoints.restore(state, saved, step=latest, allow_changes=allow_changes)
    (eval_key,) = named_keys(state.key, "evaluation")
    evaluate = None if evaluation is None else make_evaluation(objective.evaluate, evaluation, mesh, key=eval_key)
    step = make_train_step(
        objective,
        optimizer,
        mesh=mesh,
        shard_parameters=shard_parameters,
        accumulate=accumulate,
        ema_decay=ema_decay,
    )
    start, scores = int(state.step), {}
    told = callbacks if jax.process_index() == 0 else ()
    bar = ImageBar(num_steps=num_steps, start=start, visible=progress)
    reporter = _Reporter(times, bar, told)
    with contextlib.closing(bar), _opened(told, start), StopRequest() as request:
        for made in range(start + 1, num_steps + 1):
            try:
                batch = global_batch(next(stream), mesh)
            except StopIteration:
                reporter.settle(state)
                raise DataEndedError(made - 1, num_steps, state) from None
            state, metrics = step(state, batch)
            bar.update(num_examples("batch", batch))
            reporter.add(made, metrics, state)
            eval_due = evaluate is not None and times.is_due(made, eval_every)
            signal_name = request.agreed(is_meeting=made % log_every == 0)
            if not (eval_due or signal_name or times.is_due(made, checkpoint_every)):
                continue
            reporter.settle(state)
            scores, path = {}, None
            if eval_due and evaluate is not None:
                scores = evaluate(*state.averaged())
                reporter.tell(made, {f"validation/{name}": value for name, value in scores.items()})
            if checkpoints is not None:
                path = checkpoints.save(state, saved, metrics=scores)
            if signal_name and made < num_steps:
                raise TrainingPreempted(signal_name, state, num_steps, path)
        if start >= num_steps and checkpoints is not None:
            scores = checkpoints.metrics(start)
    return ScaleResult(state, scores, None if checkpoints is None else checkpoints.best_step())
