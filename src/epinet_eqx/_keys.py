"""Named streams of random keys, and of random numbers outside JAX."""

import zlib

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray, UInt64

from ._checks import check_key


def named_keys(key: PRNGKeyArray, *names: str) -> tuple[PRNGKeyArray, ...]:
    """Return one key per name.

    A key depends on its name only, not on its position, so adding a stream leaves the others unchanged.
    """
    check_key("key", key)
    return tuple(jr.fold_in(key, zlib.crc32(name.encode())) for name in names)


def stream_of(key: PRNGKeyArray, name: str) -> int:
    """Return one named stream of a key as a number of up to 128 bits, which seeds Philox.

    Philox gives the same numbers on every machine and in every version of numpy.
    """
    (named,) = named_keys(key, name)
    return int.from_bytes(np.asarray(jr.key_data(named)).astype("<u4").tobytes()[:16], "little")


def raw_bits(stream: int, number: int, size: int) -> UInt64[np.ndarray, " size"]:
    """Return `size` random words of substream `number`; a longer draw begins with a shorter one."""
    return np.random.Philox(key=stream, counter=[0, 0, 0, number]).random_raw(size)


def generator_of(stream: int, number: int) -> np.random.Generator:
    """Return the generator of substream `number`."""
    return np.random.Generator(np.random.Philox(key=stream, counter=[0, 0, 0, number]))
