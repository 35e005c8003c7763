"""Problems of the Neural Testbed: training data, and a true model or test batches (Section 5, Appendix F.1)."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._checks import Scalar, as_real_array, check_finite, check_labels, check_positive, check_scalar, is_traced
from .._keys import named_keys
from .._xla import jit_for_one_run
from ..losses import Batch
from ..networks import MLP
from ._setting import Setting


class JointBatches(eqx.Module):
    r"""Batches of $\tau$ inputs, their labels, and the log-likelihood of the labels under the true model.

    Attributes:
        x: the inputs.
        y: the labels.
        log_likelihoods: $\ln P(y_{1:\tau} \mid x_{1:\tau})$ of each batch, in nats.
    """

    x: Float[Array, "batches tau features"]
    y: Int[Array, "batches tau"]
    log_likelihoods: Float[Array, " batches"]

    def __init__(self, x: Any, y: Any, log_likelihoods: Any, *, input_dim: int, num_classes: int):
        """Initialize from arrays, of NumPy or JAX.

        Args:
            x: the inputs, of shape (batches, tau, input_dim).
            y: the labels, of shape (batches, tau).
            log_likelihoods: those of the true model, of shape (batches,).
            input_dim: the input dimension that `x` must have.
            num_classes: the number of classes.
        """
        x, y = as_real_array("test_x", x).astype(float), as_real_array("test_y", y)
        log_likelihoods = as_real_array("test_log_likelihoods", log_likelihoods).astype(float)
        if x.ndim != 3 or x.shape[2] != input_dim or 0 in x.shape:
            raise ValueError(f"`test_x` must have shape (batches, tau, {input_dim}); got {x.shape}.")
        if y.shape != x.shape[:2] or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"`test_y` must hold integers of shape {x.shape[:2]}; got shape {y.shape} of {y.dtype}.")
        if log_likelihoods.shape != x.shape[:1]:
            found = log_likelihoods.shape
            raise ValueError(f"`test_log_likelihoods` must have one entry per batch, {x.shape[0]}; got shape {found}.")
        self.x = check_finite("test_x", x)
        self.y = check_labels("test_y", y, num_classes).astype(jnp.int32)
        self.log_likelihoods = check_finite("test_log_likelihoods", log_likelihoods)

    @property
    def tau(self) -> int:
        """The number of labels of a batch."""
        return self.y.shape[-1]


_HIDDEN = (50, 50)
_NUM_CLASSES = 2

# Examples are generated in chunks: hidden layers of a hundred thousand at once would need gigabytes.
_CHUNK = 4096


class PriorKnowledge(eqx.Module):
    r"""What an agent may know about a problem besides its data.

    The number of examples and the temperature are arrays: problems that differ in these share one compiled program.

    Attributes:
        input_dim: the input dimension $D$.
        num_classes: the number of classes $C$.
        num_train: the number of training examples $T$.
        temperature: the temperature $\rho$.
    """

    input_dim: int = eqx.field(static=True)
    num_classes: int = eqx.field(static=True)
    num_train: Int[Array, ""]
    temperature: Float[Array, ""]


class GenerativeModel(eqx.Module):
    r"""The true model: $y \sim \mathrm{softmax}(\mathtt{mlp}(x) / \rho)$."""

    network: MLP
    temperature: Float[Array, ""]

    def __init__(self, input_dim: int, num_classes: int, temperature: Scalar, *, key: PRNGKeyArray):
        r"""Draw the model: a truncated normal over the root of the fan-in, and biases in the first layer only.

        Args:
            input_dim: the input dimension.
            num_classes: the number of classes.
            temperature: $\rho$; pass an array to change it without recompiling.
            key: random key.
        """
        network_key, bias_key = named_keys(key, "network", "bias")
        network = MLP(input_dim, num_classes, _HIDDEN, feature_layers=(), key=network_key)
        bias = jr.normal(bias_key, (_HIDDEN[0],)) / math.sqrt(input_dim)
        self.network = eqx.tree_at(lambda mlp: mlp.layers[0].bias, network, bias)
        # Problems are drawn in compiled programs, which are not to grow by checks.
        if not is_traced(temperature):
            check_scalar("temperature", temperature, minimum=1e-6)
        self.temperature = jnp.asarray(temperature, dtype=float)

    def __call__(self, x: Float[Array, " features"]) -> Float[Array, " classes"]:
        """Return the logits of one input."""
        return self.network(x) / self.temperature


def generate_arrays(
    input_dim: int, length: int, num_train: Int[Array, ""], temperature: Float[Array, ""], key: PRNGKeyArray
) -> "Problem":
    """Draw a problem whose data are padded to `length` with zeros; a pure function of its arrays."""
    model_key, input_key, label_key = named_keys(key, "model", "inputs", "labels")
    model = GenerativeModel(input_dim, _NUM_CLASSES, temperature, key=model_key)

    def example(number: Int[Array, ""]) -> tuple[Float[Array, " features"], Int[Array, ""]]:
        # Depends on the key and the number only, so that padding changes nothing.
        x = jr.normal(jr.fold_in(input_key, number), (input_dim,))
        y = jr.categorical(jr.fold_in(label_key, number), model(x)).astype(jnp.int32)
        valid = number < num_train
        return jnp.where(valid, x, 0.0), jnp.where(valid, y, 0)

    numbers = jnp.arange(length, dtype=jnp.int32)
    x, y = jax.lax.map(example, numbers, batch_size=min(length, _CHUNK))
    knowledge = PriorKnowledge(input_dim, _NUM_CLASSES, num_train, temperature)
    return Problem(Batch(x, y, numbers), knowledge, model, ())


_generate = jit_for_one_run(generate_arrays)


class Problem(eqx.Module):
    """Training data, prior knowledge for the agent, and the true model or test batches that score it.

    Data may be padded: the first `knowledge.num_train` examples count. A stack of problems is a `Problem` with a
    leading axis on every array, see `stack_problems`.

    Attributes:
        data: the training data.
        knowledge: sizes and the temperature.
        model: the true model; None for a problem made from arrays.
        tests: test batches of a problem made from arrays, each for another tau.
    """

    data: Batch
    knowledge: PriorKnowledge
    model: GenerativeModel | None
    tests: tuple[JointBatches, ...]

    @classmethod
    def generate(cls, setting: Setting, *, pad_to: int | None = None, key: PRNGKeyArray) -> "Problem":
        """Draw the problem of a setting.

        Args:
            setting: the setting.
            pad_to: length of the data, filled up with zeros; the examples are the same at every length.
            key: random key of this problem; `fold_in(key, setting.number)` for many.
        """
        length = setting.num_train if pad_to is None else pad_to
        if length < setting.num_train:
            raise ValueError(f"`pad_to` must be at least the number of examples, {setting.num_train}; got {pad_to}.")
        num_train = jnp.asarray(setting.num_train, dtype=jnp.int32)
        return _generate(setting.input_dim, length, num_train, jnp.asarray(setting.temperature, dtype=float), key)

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        test_x: Any,
        test_y: Any,
        test_log_likelihoods: Any,
        *,
        temperature: float,
        num_classes: int = _NUM_CLASSES,
    ) -> "Problem":
        r"""Return a problem from arrays generated elsewhere.

        Args:
            x: training inputs, of shape (examples, input_dim).
            y: training labels, of shape (examples,).
            test_x: inputs of the test batches, of shape (batches, tau, input_dim).
            test_y: their labels, of shape (batches, tau).
            test_log_likelihoods: log-likelihood of each test batch under the true model, of shape (batches,).
            temperature: the temperature $\rho$, which agents know.
            num_classes: the number of classes.
        """
        check_positive("num_classes", num_classes)
        x, y = as_real_array("x", x).astype(float), as_real_array("y", y)
        if x.ndim != 2 or 0 in x.shape:
            raise ValueError(f"`x` must have shape (examples, input_dim); got {x.shape}.")
        if y.shape != x.shape[:1] or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"`y` must hold integers of shape {x.shape[:1]}; got shape {y.shape} of {y.dtype}.")
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"`temperature` must be positive and finite; got {temperature}.")
        data = Batch.of(check_finite("x", x), check_labels("y", y, num_classes).astype(jnp.int32))
        num_train, rho = jnp.asarray(x.shape[0], dtype=jnp.int32), jnp.asarray(temperature, dtype=float)
        problem = cls(data, PriorKnowledge(x.shape[1], num_classes, num_train, rho), None, ())
        return problem.with_tests(test_x, test_y, test_log_likelihoods)

    def with_tests(self, test_x: Any, test_y: Any, test_log_likelihoods: Any) -> "Problem":
        """Return the problem with test batches of another tau."""
        if self.model is not None:
            raise ValueError("`test_x` must be left out for a problem with a true model, which draws its test batches.")
        known = self.knowledge
        tests = JointBatches(
            test_x, test_y, test_log_likelihoods, input_dim=known.input_dim, num_classes=known.num_classes
        )
        if tests.tau in self.taus:
            raise ValueError(f"`test_x` must have another tau than the batches before, {self.taus}; got {tests.tau}.")
        return Problem(self.data, known, None, (*self.tests, tests))

    @property
    def taus(self) -> tuple[int, ...]:
        """Numbers of labels of the given test batches; empty with a true model, which can draw any."""
        return tuple(tests.tau for tests in self.tests)

    def trimmed(self) -> "Problem":
        """Return the problem without padding."""
        size = int(self.knowledge.num_train)
        data = jax.tree.map(lambda leaf: leaf[:size], self.data)
        return Problem(data, self.knowledge, self.model, self.tests)
