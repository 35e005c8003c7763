"""Random numbers outside of JAX: streams of Philox, which is the same on every machine and in every version."""

import numpy as np
from jax import random as jr
from jaxtyping import PRNGKeyArray, UInt64

from .._keys import named_keys


def stream_of(key: PRNGKeyArray, name: str) -> int:
    """Return a number of up to 128 bits that stands for one named stream of a key."""
    (named,) = named_keys(key, name)
    return int.from_bytes(np.asarray(jr.key_data(named)).astype("<u4").tobytes()[:16], "little")


def raw_bits(stream: int, number: int, size: int) -> UInt64[np.ndarray, " size"]:
    """Return `size` random words of substream `number`; more of them begin with the fewer."""
    return np.random.Philox(key=stream, counter=[0, 0, 0, number]).random_raw(size)


def generator_of(stream: int, number: int) -> np.random.Generator:
    """Return the generator of substream `number`."""
    return np.random.Generator(np.random.Philox(key=stream, counter=[0, 0, 0, number]))
