"""A bandit whose reward is a label of the Neural Testbed's generative model (Section 5, Appendix F.1)."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import check_finite, check_positive
from .._keys import named_keys
from ..testbed import GenerativeModel
from ._bandit import AbstractBandit, Round


class NeuralBandit(AbstractBandit):
    r"""Fixed actions $x_a$ with rewards $y \sim \mathrm{softmax}(\mathtt{mlp}(x_a) / \rho)$ of 0 and 1."""

    inputs: Float[Array, "actions features"]
    model: GenerativeModel

    def __init__(self, inputs: Float[Array, "actions features"], model: GenerativeModel):
        """Initialize from the inputs that can be chosen and the true model, which must have two classes."""
        if inputs.ndim != 2 or inputs.size == 0:
            raise ValueError(f"`inputs` must have shape (actions, features) and not be empty; got {inputs.shape}.")
        classes = jax.eval_shape(model, inputs[0]).shape[0]
        if classes != 2:
            raise ValueError(f"`model` must have two classes, for rewards of 0 and 1; got {classes}.")
        self.inputs = check_finite("inputs", inputs)
        self.model = model

    @classmethod
    def generate(
        cls, input_dim: int, num_actions: int, temperature: float | Float[Array, ""] = 0.1, *, key: PRNGKeyArray
    ) -> "NeuralBandit":
        r"""Draw a problem of the testbed: the model by its prior, and standard normal inputs.

        Args:
            input_dim: the input dimension.
            num_actions: the number of inputs to choose from.
            temperature: $\rho$, an array so that other values compile nothing.
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
