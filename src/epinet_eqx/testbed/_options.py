"""What all estimators of the KL divergence take: numbers of labels, and indices to average over."""

from collections.abc import Sequence
from typing import Literal

from jaxtyping import PRNGKeyArray

from .._checks import check_positive
from ..indices import AbstractIndex
from ..predict._inputs import make_draws
from ..predict._stream import Draws

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


def choose_draws(index: AbstractIndex, num_samples: NumSamples, *, chunk_size: int, key: PRNGKeyArray | None) -> Draws:
    """Return the indices to average over; "auto" takes a finite support of moderate size exactly."""
    if num_samples == "auto":
        finite = hasattr(index, "support") and index.size <= NUM_SAMPLES
        num_samples = None if finite else NUM_SAMPLES
    return make_draws(index, num_samples, chunk_size=chunk_size, key=key)
