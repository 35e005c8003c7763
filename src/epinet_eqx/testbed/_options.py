"""What all estimators of the KL divergence take: numbers of labels, and indices to average over."""

from collections.abc import Sequence
from typing import Literal

from jaxtyping import PRNGKeyArray

from .._checks import check_positive
from .._draws import Draws
from ..indices import AbstractIndex

# Indices and test batches of the original estimator.
NUM_SAMPLES = 1000
NUM_BATCHES = 1000

NumSamples = int | None | Literal["auto"]


def check_taus(taus: Sequence[int]) -> None:
    """Raise unless `taus` holds positive integers, each once."""
    for tau in taus:
        check_positive("taus", tau)
    if not taus or len(set(taus)) < len(taus):
        raise ValueError(f"`taus` must hold at least one number of labels, and each once; got {tuple(taus)}.")


def choose_draws(index: AbstractIndex, num_samples: NumSamples, *, chunk_size: int, key: PRNGKeyArray) -> Draws:
    """Return the indices to average over; "auto" takes a finite support of moderate size exactly."""
    if num_samples == "auto":
        support = index.support()
        num_samples = None if support is not None and support.shape[0] <= NUM_SAMPLES else NUM_SAMPLES
    if num_samples is None:
        return Draws.all(index, chunk_size=chunk_size)
    return Draws.sample(index, num_samples, key=key, chunk_size=chunk_size)
