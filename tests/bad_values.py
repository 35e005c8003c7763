"""Values that no function takes for an argument of some kind, and what a function says of them."""

import re

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from epinet_eqx.networks import MLP
from epinet_eqx.training import DataExhaustedError


def arrays(good):
    """Return what no function takes for a floating-point array like `good`."""
    good = np.asarray(good, np.float32)
    return [
        np.where(np.arange(good.size).reshape(good.shape) == 0, np.nan, good),
        np.full(good.shape, 1e300),
        np.full(good.shape, 2**40),
        np.ma.masked_array(good, mask=good > 0),
        good * 1j,
        good.astype(str),
        good.astype(object),
        good[..., :0],
        "x",
        None,
    ]


def labels(good):
    """Return what no function takes for classes like `good`, of which the largest is 3."""
    return [
        good + 0.5,
        good.astype(np.float32),
        good - 1,
        good + 1,
        good + 2**32,
        good > 1,
        good[:, None],
        good[:-1],
        good * 1j,
        np.ma.masked_array(good, mask=good > 1),
        good.astype(str),
        None,
    ]


SIZES = (0, -1, 1.5, True, None, "a", float("nan"), float("inf"))
NUMBERS = (float("nan"), "a", 1j, np.array([0.5, 0.6]), [0.5], True, np.ma.masked_array(0.5, mask=True), 10**400)
POSITIVE = (*NUMBERS, -1.0, None)
SHARES = (*NUMBERS, -1.0, 1.5, float("inf"), None)
KEYS = (0, None, "a", 1.5, jr.split(jr.key(10), 3))
FUNCTIONS = (None, 3, "a")
ENNS = (MLP(3, 4, (5,), key=jr.key(11)), None, 3, "a", lambda x: x)
MASKS = lambda good: (np.arange(good), np.ones(good - 1, bool), np.ones(good), "a", np.ma.masked_array([True] * good))  # noqa: E731


def said(function, good, name, bad):
    """Return what a call with one bad value says: an error that is a sentence of ours is None."""
    try:
        function(**{**good, name: bad})
    except (ValueError, FloatingPointError, DataExhaustedError) as error:
        return None if re.search(r"`[^`]+`.* must ", str(error)) else f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "an answer"


def answers(function, good, values):
    """Return what is not refused by a sentence, one line for each bad value."""
    # A call that is refused late has used the key.
    with jax.debug_key_reuse(False):
        return _answers(function, good, values)


def _answers(function, good, values):
    return [
        f"{name}={eqx.tree_pformat(bad)[:60]}: {answer[:120]}"
        for name, kinds in values.items()
        for bad in kinds
        if (answer := said(function, good, name, bad)) is not None
    ]
