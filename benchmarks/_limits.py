"""Where the promised ratios fail.

`bench_*.py` states the goal of each ratio. Some goals are for machines with more cores than the two used for these
limits. A gate fails at the limit here, well beyond what an unchanged library reaches on a busy machine, so
that only a regression fails. The output also shows the goal.
"""

from typing import NamedTuple


class Limit(NamedTuple):
    """Values measured on two cores, from the worst run to the best, and the last value that passes."""

    measured: tuple[float, float]
    limit: float


LIMITS: dict[str, Limit] = {
    "heads: operations of one run per index over ours": Limit((20.4, 20.4), 20.0),
    "heads: time of one run per index over ours": Limit((20.0, 44.0), 8.0),
    "training: steps/s of the compiled loop, over a Python loop": Limit((3.0, 4.6), 2.0),
    "ensemble: particle-steps/s of the loop, over one by one": Limit((1.2, 2.2), 1.0),
    "ensemble: particle-steps/s of `fit_ensemble`, over `fit` one by one": Limit((1.8, 2.6), 1.3),
    "testbed: five problems one at a time, over one stack": Limit((11.0, 11.8), 4.0),
    "import: seconds of all packages, beyond jax, equinox, optax": Limit((0.56, 0.41), 1.0),
    "install: MB on the disk beyond jax and what it requires": Limit((8.0, 8.0), 20.0),
}
"""The limits by name of the ratio: floors, or ceilings of what should be small. Others must be as asked."""
