"""NumPy's random numbers from the keys of JAX, for double precision and for code that must not share the library's."""

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray


def numpy_generator(key: PRNGKeyArray) -> np.random.Generator:
    """Return the generator that a key stands for."""
    return np.random.default_rng(np.asarray(jr.key_data(key)))
