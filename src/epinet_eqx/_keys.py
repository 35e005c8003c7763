"""Named streams of random keys."""

import zlib

import jax.random as jr
from jaxtyping import PRNGKeyArray


def named_keys(key: PRNGKeyArray, *names: str) -> tuple[PRNGKeyArray, ...]:
    """Return one key per name.

    A key depends on its name only, not on its position, so adding a stream shifts none of the others.
    """
    return tuple(jr.fold_in(key, zlib.crc32(name.encode())) for name in names)
