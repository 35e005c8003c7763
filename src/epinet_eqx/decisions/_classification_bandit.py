"""A bandit made of a data set: an action is a guess of the class."""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._checks import check_finite, check_labels, check_positive, is_traced
from ._bandit import AbstractBandit, Round


class ClassificationBandit(AbstractBandit):
    """A new example each round; the reward is 1 for naming its class and 0 otherwise, and the class is not told.

    The input of an action is the example together with the class that is guessed.
    """

    x: Float[Array, "batch features"]
    y: Int[Array, " batch"]
    num_classes: int = eqx.field(static=True)
    encoding: Literal["blocks", "appended"] = eqx.field(static=True)

    def __init__(
        self, x: Any, y: Any, *, num_classes: int | None = None, encoding: Literal["blocks", "appended"] = "blocks"
    ):
        """Initialize from examples.

        Args:
            x: features, of shape (examples, features); images are flattened before.
            y: their classes.
            num_classes: the number of classes, each of which must occur; by default that of the labels.
            encoding: "blocks" puts the example into the block of the class and zeros into those of the others, so the
                classes have weights of their own in a first layer; "appended" adds the class as a one-hot vector.
        """
        x, y = jnp.asarray(x, dtype=float), jnp.asarray(y)
        if x.ndim != 2 or x.size == 0:
            raise ValueError(f"`x` must have shape (examples, features) and not be empty; got {x.shape}.")
        if y.shape != x.shape[:1] or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"`y` must hold one integer label per example; got shape {y.shape} of {y.dtype}.")
        if encoding not in ("blocks", "appended"):
            raise ValueError(f'`encoding` must be "blocks" or "appended"; got {encoding!r}.')
        num_classes = int(jnp.max(y)) + 1 if num_classes is None else num_classes
        check_positive("num_classes", num_classes)
        y = check_labels("y", y.astype(jnp.int32), num_classes)
        if not is_traced(y) and (missing := sorted(set(range(num_classes)) - set(np.asarray(y).tolist()))):
            raise ValueError(f"`y` must hold labels of all {num_classes} classes; got none of {missing}.")
        self.x = check_finite("x", x)
        self.y = y
        self.num_classes = num_classes
        self.encoding = encoding

    @property
    def input_dim(self) -> int:
        """The size of the input of an action."""
        features = self.x.shape[-1]
        return features * self.num_classes if self.encoding == "blocks" else features + self.num_classes

    def round(self, *, key: PRNGKeyArray) -> Round:
        """Draw an example."""
        number = jr.randint(key, (), 0, self.x.shape[0])
        x, classes = self.x[number], jnp.eye(self.num_classes)
        if self.encoding == "blocks":
            inputs = jax.vmap(lambda guess: jnp.outer(guess, x).reshape(-1))(classes)
        else:
            inputs = jnp.concatenate([jnp.broadcast_to(x, (self.num_classes, *x.shape)), classes], axis=1)
        return Round(inputs, classes[self.y[number]])

    def reward(self, expected: Float[Array, ""], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Return whether the guess was right, which is certain."""
        return expected
