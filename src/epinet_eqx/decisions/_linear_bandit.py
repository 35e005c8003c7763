"""A bandit with rewards that are linear in the action's features."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import check_finite, check_positive, check_scalar
from .._keys import named_keys
from ._bandit import AbstractBandit, Round


class LinearBandit(AbstractBandit):
    r"""Fixed actions $x_a$ with rewards $\theta^\top x_a + \sigma \epsilon$, $\epsilon \sim N(0, 1)$."""

    inputs: Float[Array, "actions features"]
    theta: Float[Array, " features"]
    noise_scale: Float[Array, ""]

    def __init__(
        self,
        inputs: Float[Array, "actions features"],
        theta: Float[Array, " features"],
        noise_scale: float | Float[Array, ""] = 0.1,
    ):
        r"""Initialize from the features of the actions, $\theta$, and the standard deviation $\sigma$ of the noise."""
        if inputs.ndim != 2 or inputs.size == 0:
            raise ValueError(f"`inputs` must have shape (actions, features) and not be empty; got {inputs.shape}.")
        if theta.shape != inputs.shape[1:]:
            raise ValueError(f"`theta` must have one entry per feature, {inputs.shape[1]}; got shape {theta.shape}.")
        self.inputs = check_finite("inputs", inputs)
        self.theta = check_finite("theta", theta)
        self.noise_scale = check_scalar("noise_scale", jnp.asarray(noise_scale, dtype=float), minimum=0.0)

    @classmethod
    def generate(
        cls, input_dim: int, num_actions: int, noise_scale: float | Float[Array, ""] = 0.1, *, key: PRNGKeyArray
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
