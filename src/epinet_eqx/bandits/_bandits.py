"""Bandits: a set of actions per round, and a reward for the chosen one (Appendix B)."""

import abc
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree

from .._checks import (
    Scalar,
    as_floats,
    as_real_array,
    check_finite,
    check_function,
    check_labels,
    check_positive,
    check_scalar,
    is_traced,
)
from .._keys import named_keys
from ..testbed import GenerativeModel


class Round(NamedTuple):
    """One decision.

    Attributes:
        inputs: features of each action, an array or a tree of arrays with a leading axis of actions.
        expected: expected reward of each action, hidden from the agent.
    """

    inputs: PyTree[Array]
    expected: Float[Array, " actions"]


class AbstractBandit(eqx.Module):
    """An environment without state: an action affects later rounds only through what the agent learns."""

    @abc.abstractmethod
    def round(self, *, key: PRNGKeyArray) -> Round:
        """Draw the next decision; every round has the same number of actions."""

    @abc.abstractmethod
    def reward(self, expected: Float[Array, ""], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Draw the reward of an action with this expected reward."""


class LinearBandit(AbstractBandit):
    r"""Fixed actions $x_a$ with rewards $\theta^\top x_a + \sigma \epsilon$, $\epsilon \sim N(0, 1)$."""

    inputs: Float[Array, "actions features"]
    theta: Float[Array, " features"]
    noise_scale: Float[Array, ""]

    def __init__(
        self,
        inputs: Float[ArrayLike, "actions features"],
        theta: Float[ArrayLike, " features"],
        noise_scale: Scalar = 0.1,
    ):
        r"""Initialize from the features of the actions, $\theta$, and the standard deviation $\sigma$ of the noise."""
        inputs, theta = as_floats("inputs", inputs), as_floats("theta", theta)
        if inputs.ndim != 2 or inputs.size == 0:
            raise ValueError(f"`inputs` must have shape (actions, features) and not be empty; got {inputs.shape}.")
        if theta.shape != inputs.shape[1:]:
            raise ValueError(f"`theta` must have one entry per feature, {inputs.shape[1]}; got shape {theta.shape}.")
        self.inputs = check_finite("inputs", inputs)
        self.theta = check_finite("theta", theta)
        self.noise_scale = check_scalar("noise_scale", noise_scale, minimum=0.0)

    @classmethod
    def generate(
        cls, input_dim: int, num_actions: int, noise_scale: Scalar = 0.1, *, key: PRNGKeyArray
    ) -> "LinearBandit":
        r"""Draw a bandit: standard normal $\theta$, and actions on the unit sphere."""
        check_positive("input_dim", input_dim)
        check_positive("num_actions", num_actions)
        input_key, theta_key = named_keys(key, "inputs", "theta")
        inputs = jr.normal(input_key, (num_actions, input_dim))
        inputs = inputs / jnp.linalg.norm(inputs, axis=1, keepdims=True)
        return cls(inputs, jr.normal(theta_key, (input_dim,)), noise_scale)

    def round(self, *, key: PRNGKeyArray) -> Round:
        """Return the decision, the same each time."""
        return Round(self.inputs, self.inputs @ self.theta)

    def reward(self, expected: Float[Array, ""], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Add the noise."""
        return expected + self.noise_scale * jr.normal(key)


class NeuralBandit(AbstractBandit):
    r"""Fixed actions $x_a$ with rewards $y \sim \mathrm{softmax}(\mathtt{mlp}(x_a) / \rho)$ of 0 and 1."""

    inputs: Float[Array, "actions features"]
    model: GenerativeModel

    def __init__(self, inputs: Float[ArrayLike, "actions features"], model: GenerativeModel):
        """Initialize from the features of the actions and the true model, which must have two classes."""
        inputs = as_floats("inputs", inputs)
        check_function("model", model)
        if inputs.ndim != 2 or inputs.size == 0:
            raise ValueError(f"`inputs` must have shape (actions, features) and not be empty; got {inputs.shape}.")
        classes = jax.eval_shape(model, inputs[0]).shape[0]
        if classes != 2:
            raise ValueError(f"`model` must have two classes, for rewards of 0 and 1; got {classes}.")
        self.inputs = check_finite("inputs", inputs)
        self.model = model

    @classmethod
    def generate(
        cls, input_dim: int, num_actions: int, temperature: Scalar = 0.1, *, key: PRNGKeyArray
    ) -> "NeuralBandit":
        r"""Draw a problem of the testbed: the model by its prior, and standard normal inputs.

        Args:
            input_dim: the input dimension.
            num_actions: the number of inputs to choose from.
            temperature: $\rho$; pass an array to change it without recompiling.
            key: random key.
        """
        check_positive("input_dim", input_dim)
        check_positive("num_actions", num_actions)
        input_key, model_key = named_keys(key, "inputs", "model")
        model = GenerativeModel(input_dim, 2, temperature, key=model_key)
        return cls(jr.normal(input_key, (num_actions, input_dim)), model)

    def round(self, *, key: PRNGKeyArray) -> Round:
        """Return the decision, the same each time."""
        return Round(self.inputs, jax.nn.softmax(jax.vmap(self.model)(self.inputs))[:, 1])

    def reward(self, expected: Float[Array, ""], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Draw 0 or 1."""
        return jr.bernoulli(key, expected).astype(jnp.float32)


class ClassificationBandit(AbstractBandit):
    """A new example each round: guessing its class earns 1, any other guess 0; the class is not revealed.

    The features of an action are the example together with the guessed class.
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
            x: features, of shape (examples, features); flatten images first.
            y: their classes.
            num_classes: the number of classes, each of which must occur; by default that of the labels.
            encoding: "blocks" puts the example into the block of the class and zeros into the other blocks, so that the
                first layer has separate weights per class; "appended" adds the class as a one-hot vector.
        """
        x, y = as_real_array("x", x).astype(float), as_real_array("y", y)
        if x.ndim != 2 or x.size == 0:
            raise ValueError(f"`x` must have shape (examples, features) and not be empty; got {x.shape}.")
        if y.shape != x.shape[:1] or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"`y` must hold one integer label per example; got shape {y.shape} of {y.dtype}.")
        if encoding not in ("blocks", "appended"):
            raise ValueError(f'`encoding` must be "blocks" or "appended"; got {encoding!r}.')
        num_classes = int(jnp.max(y)) + 1 if num_classes is None else num_classes
        check_positive("num_classes", num_classes)
        y = check_labels("y", y, num_classes).astype(jnp.int32)
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
        """Return the expected reward itself: there is no noise."""
        return expected
