"""All 180 problems of the testbed, trained on and evaluated by all cores: the epinet, and an ensemble of 100."""

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax.random as jr
from tqdm import tqdm

from reproduce.configs.testbed import Scaling, Score, Variant, variant_of
from reproduce.executors import open_executor
from reproduce.experiments.testbed import groups, score
from reproduce.registry import REGISTRY

from ._measure import Ratio


def _scores(group: Sequence[Score]) -> Iterator[Any]:
    """Yield the scores of problems that are trained on at once, as figure 5 at tier paper has them."""
    yield from score(group, key=jr.key(REGISTRY["fig05"].seed))


def _minutes(variant: Variant) -> float:
    """Return how long an agent takes for all problems, compilation and the start of processes included."""
    units = Scaling(variants=(variant,)).units()
    tasks = [[units[name] for name in group] for group in groups(units)]
    start = time.perf_counter()
    with (
        open_executor("local", workers=os.cpu_count() or 1) as executor,
        tqdm(total=len(units), desc=variant.label, unit="problem") as bar,
    ):
        for _ in executor.map(_scores, tasks):
            bar.update()
    return (time.perf_counter() - start) / 60


def main() -> list[Ratio]:
    """Return the minutes of both sweeps."""
    return [
        Ratio("sweeps: minutes of the epinet", _minutes(variant_of("epinet")), 15, at_most=True),
        Ratio(
            "sweeps: minutes of an ensemble of 100",
            _minutes(variant_of("ensemble", num_particles=100)),
            60,
            at_most=True,
        ),
    ]
