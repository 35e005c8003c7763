"""Time to read a saved model and a checkpoint with their checksums verified, over the time without: all on one core."""

import contextlib
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from epinet_eqx import _save, load, save
from epinet_eqx.training import Checkpoints, _stored, init_state

from ._measure import Ratio

ROUNDS = 40
SIZES = (1, 10, 40, 200)
# The arrays of a ResNet in number: weights, and as many vectors again twice.
NUM_WEIGHTS, NUM_VECTORS = 30, 60


def _model(megabytes: int) -> dict[str, jax.Array]:
    """Return incompressible arrays of this many megabytes."""
    rng = np.random.default_rng(0)
    size = megabytes * 250_000 // NUM_WEIGHTS
    weights = {f"weight{n}": jnp.asarray(rng.normal(size=size).astype(np.float32)) for n in range(NUM_WEIGHTS)}
    return weights | {f"vector{n}": jnp.ones(256) for n in range(NUM_VECTORS)}


class _Timed:
    """A function that adds up its seconds."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self.seconds = 0.0

    def __call__(self, *args: Any) -> Any:
        """Return what the function returns."""
        start = time.perf_counter()
        try:
            return self._function(*args)
        finally:
            self.seconds += time.perf_counter() - start


def _median_ratio(read: Callable[[], Any], *parts: tuple[Any, str]) -> float:
    """Return the time of `read` over its time without these functions, the median over rounds.

    Both are parts of the same call: two calls differ by more, according to where the system finds memory.
    """
    ratios = []
    with contextlib.ExitStack() as patches:
        timed = [_Timed(getattr(owner, name)) for owner, name in parts]
        for (owner, name), function in zip(parts, timed, strict=True):
            # A plain function, so that it becomes a method of a class.
            patches.enter_context(mock.patch.object(owner, name, lambda *args, function=function: function(*args)))
        # The first rounds bring files and programs into memory.
        for number in range(-2, ROUNDS):
            for function in timed:
                function.seconds = 0.0
            start = time.perf_counter()
            result = jax.block_until_ready(read())
            whole = time.perf_counter() - start
            del result
            verifying = sum(function.seconds for function in timed)
            ratios += [whole / (whole - verifying)] if number >= 0 else []
    return statistics.median(ratios)


def _of_model(megabytes: int, folder: pathlib.Path) -> float:
    """Return the ratio for a saved model."""
    model, path = _model(megabytes), folder / "model.safetensors"
    save(path, model, {"width": 3})
    return _median_ratio(lambda: load(path, model), (_save, "_check_data"), (_save, "_header_checksum"))


def _of_checkpoint(megabytes: int, folder: pathlib.Path) -> float:
    """Return the ratio for a checkpoint of training without momentum."""
    state = init_state(_model(megabytes), optax.sgd(0.1), key=jr.key(0))
    checkpoints = Checkpoints(folder / "checkpoints")
    checkpoints.save(state)
    return _median_ratio(lambda: jax.tree.leaves(checkpoints.restore(state)), (_stored.Stored, "damage"))


def main() -> list[Ratio]:
    """Return the ratios, of models for several sizes."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ratios = [
            Ratio(
                f"load: a model of {size} MB with checksums, over without", _of_model(size, folder), 1.1, at_most=True
            )
            for size in SIZES
        ]
        checkpoint = _of_checkpoint(100, folder)
    return [*ratios, Ratio("load: a checkpoint of 100 MB with checksums, over without", checkpoint, 1.1, at_most=True)]
