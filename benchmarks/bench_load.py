"""Time to read a saved model and a checkpoint with their checksums verified, over the time without: all on one core."""

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
    """Return arrays of so many megabytes that do not compress."""
    rng = np.random.default_rng(0)
    size = megabytes * 250_000 // NUM_WEIGHTS
    weights = {f"weight{n}": jnp.asarray(rng.normal(size=size).astype(np.float32)) for n in range(NUM_WEIGHTS)}
    return weights | {f"vector{n}": jnp.ones(256) for n in range(NUM_VECTORS)}


def _median_ratio(checked: Callable[[], Any], unchecked: Callable[[], Any]) -> float:
    """Return the median over rounds of the ratio of both times; who goes first alternates."""

    def seconds(function: Callable[[], Any]) -> float:
        start = time.perf_counter()
        jax.block_until_ready(function())
        return time.perf_counter() - start

    # The first rounds bring files and programs into memory.
    ratios = []
    for number in range(-2, ROUNDS):
        if number % 2:
            without, verified = seconds(unchecked), seconds(checked)
        else:
            verified, without = seconds(checked), seconds(unchecked)
        ratios += [verified / without] if number >= 0 else []
    return statistics.median(ratios)


def _of_model(megabytes: int, folder: pathlib.Path) -> float:
    """Return the ratio for a saved model."""
    model, path = _model(megabytes), folder / "model.safetensors"
    save(path, model, {"width": 3})

    def unchecked() -> Any:
        with (
            mock.patch.object(_save, "_check_data"),
            mock.patch.object(_save, "_header_checksum", lambda _, stated: stated),
        ):
            return load(path, model)

    return _median_ratio(lambda: load(path, model), unchecked)


def _of_checkpoint(megabytes: int, folder: pathlib.Path) -> float:
    """Return the ratio for a checkpoint of training without momentum."""
    state = init_state(_model(megabytes), optax.sgd(0.1), key=jr.key(0))
    checkpoints = Checkpoints(folder / "checkpoints")
    checkpoints.save(state)

    def unchecked() -> Any:
        with mock.patch.object(_stored.Stored, "damage", lambda _: None):
            return jax.tree.leaves(checkpoints.restore(state))

    return _median_ratio(lambda: jax.tree.leaves(checkpoints.restore(state)), unchecked)


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
