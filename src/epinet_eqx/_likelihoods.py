"""Likelihoods: how an output of a network becomes a distribution of the target."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from ._checks import check_finite, check_labels, check_scalar, require


class AbstractLikelihood(eqx.Module):
    """The distribution of the target of one example, given the output of a network there."""

    is_conjugate: ClassVar[bool] = False
    """Whether a linear layer with a Gaussian prior has a Gaussian posterior, in closed form."""

    @abc.abstractmethod
    def log_prob(self, output: Float[Array, " classes"], y: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the log-probability (or log-density) of the target `y`, in nats."""

    @abc.abstractmethod
    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Shaped[Array, "batch ..."]:
        """Return `y` in the form that `log_prob` takes; raise if a network with `num_outputs` cannot predict it."""

    @abc.abstractmethod
    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the expected target: class probabilities, or the mean of a regression."""

    @abc.abstractmethod
    def outcome_log_probs(self, output: Float[Array, " classes"]) -> Float[Array, "labels outcomes"]:
        """Return the log-probability of each outcome of each label; raise unless the outcomes are finitely many."""

    @abc.abstractmethod
    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        """Return the Fisher information of the output, summed over a batch with these weights."""


class Categorical(AbstractLikelihood):
    r"""Classification: $\hat P(y) = \mathrm{softmax}(\text{output})_y$ (Section 3)."""

    def log_prob(self, output: Float[Array, " classes"], y: Shaped[Array, ""]) -> Float[Array, ""]:
        """Return the log-probability of the class `y`."""
        # Never the logarithm of a softmax, which is minus infinity beyond a logit gap of about 100.
        return jax.nn.log_softmax(output)[y]

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Shaped[Array, " batch"]:
        """Return `y`, which must hold one class per example."""
        if y.ndim != 1 or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"`y` must hold one integer label per example; got shape {y.shape} of {y.dtype}.")
        # Small types cannot hold the number of classes; large ones would wrap around into the classes.
        wide = y if y.dtype.itemsize > 4 else y.astype(jnp.int32)
        return check_labels("y", wide, num_outputs).astype(jnp.int32)

    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the class probabilities."""
        return jax.nn.softmax(output)

    def outcome_log_probs(self, output: Float[Array, " classes"]) -> Float[Array, "labels outcomes"]:
        """Return the log-probabilities of the classes of the one label."""
        if output.shape[0] < 2:
            raise ValueError(
                f"`enn` must have at least 2 outputs for a `Categorical` likelihood; got {output.shape[0]}. "
                "For a regression or several labels, say so by `likelihood`."
            )
        return jax.nn.log_softmax(output)[None]

    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        r"""Return the weighted sum of $\mathrm{diag}(p) - p p^\top$."""
        probs = jax.nn.softmax(outputs)
        return jnp.diag(weights @ probs) - (weights[:, None] * probs).T @ probs


class Bernoulli(AbstractLikelihood):
    r"""Labels that may hold together: $\hat P(y_k = 1) = \mathrm{sigmoid}(\text{output}_k)$, independently."""

    def log_prob(self, output: Float[Array, " classes"], y: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the log-probability of the vector `y` of zeros and ones."""
        # sigmoid(-o) = 1 - sigmoid(o).
        return jnp.sum(jax.nn.log_sigmoid(jnp.where(y.astype(bool), output, -output)))

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Shaped[Array, "batch classes"]:
        """Return `y`, which must hold a zero or a one per example and output."""
        return _as_vectors(y, num_outputs, ~((y == 0) | (y == 1)), "zeros and ones")

    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the probability that each label holds."""
        return jax.nn.sigmoid(output)

    def outcome_log_probs(self, output: Float[Array, " classes"]) -> Float[Array, "labels outcomes"]:
        """Return the log-probabilities of zero and one for each label."""
        return jnp.stack([jax.nn.log_sigmoid(-output), jax.nn.log_sigmoid(output)], axis=1)

    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        r"""Return the weighted sum of $\mathrm{diag}(p (1 - p))$."""
        probs = jax.nn.sigmoid(outputs)
        return jnp.diag(weights @ (probs * (1 - probs)))


class Gaussian(AbstractLikelihood):
    r"""Regression with known noise: $y \sim N(\text{output}, \sigma^2 I)$."""

    is_conjugate: ClassVar[bool] = True
    scale: Float[Array, ""]

    def __init__(self, scale: float | Float[Array, ""]):
        r"""Initialize with the standard deviation $\sigma$, an array so that sweeping it compiles once."""
        self.scale = check_scalar("scale", jnp.asarray(scale, dtype=float), minimum=1e-12)

    def log_prob(self, output: Float[Array, " classes"], y: Float[Array, " classes"]) -> Float[Array, ""]:
        """Return the log-density of the target vector `y`."""
        standardized = (y - output) / self.scale
        return jnp.sum(-0.5 * jnp.square(standardized) - jnp.log(self.scale) - 0.5 * jnp.log(2 * jnp.pi))

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Float[Array, "batch classes"]:
        """Return `y`, which must hold one finite number per example and output, with an axis of outputs."""
        return _as_real_vectors(y, num_outputs)

    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the output."""
        return output

    def outcome_log_probs(self, output: Float[Array, " classes"]) -> Float[Array, "labels outcomes"]:
        """Raise: the outcomes are not finitely many."""
        raise _not_finite(self)

    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        r"""Return the weighted sum of $I / \sigma^2$."""
        return jnp.eye(outputs.shape[1]) * (jnp.sum(weights) / self.scale**2)


class LearnedGaussian(AbstractLikelihood):
    r"""Regression with learned noise: $y_k \sim N(\mu_k, \sigma_k^2)$ for the output $(\mu, \ln \sigma)$.

    The second half of the outputs is the logarithm of the scale, one per input and dimension of the target. For one
    scale that all inputs share, wrap the ENN of the mean in `combinators.WithNoiseScale`.
    """

    def log_prob(self, output: Float[Array, " classes"], y: Float[Array, "..."]) -> Float[Array, ""]:
        """Return the log-density of the target vector `y`."""
        mean, log_scale = jnp.split(output, 2)
        standardized = (y - mean) * jnp.exp(-log_scale)
        return jnp.sum(-0.5 * jnp.square(standardized) - log_scale - 0.5 * jnp.log(2 * jnp.pi))

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Float[Array, "batch targets"]:
        """Return `y`, which must hold one finite number per example and pair of outputs."""
        if num_outputs % 2 != 0:
            raise ValueError(f"The outputs of a `LearnedGaussian` must be means and log-scales; got {num_outputs}.")
        return _as_real_vectors(y, num_outputs // 2)

    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the first half of the outputs."""
        return jnp.split(output, 2)[0]

    def outcome_log_probs(self, output: Float[Array, " classes"]) -> Float[Array, "labels outcomes"]:
        """Raise: the outcomes are not finitely many."""
        raise _not_finite(self)

    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        r"""Return the weighted sum of $\mathrm{diag}(\sigma^{-2}, 2)$."""
        log_scale = jnp.split(outputs, 2, axis=1)[1]
        return jnp.diag(weights @ jnp.concatenate([jnp.exp(-2 * log_scale), jnp.full_like(log_scale, 2.0)], axis=1))


class Poisson(AbstractLikelihood):
    r"""Counts: $y_k \sim \mathrm{Poisson}(e^{\text{output}_k})$, independently."""

    def log_prob(self, output: Float[Array, " classes"], y: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the log-probability of the vector `y` of counts."""
        counts = y.astype(output.dtype)
        return jnp.sum(counts * output - jnp.exp(output) - jax.scipy.special.gammaln(counts + 1))

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Shaped[Array, "batch classes"]:
        """Return `y`, which must hold one count per example and output."""
        return _as_vectors(y, num_outputs, ~((y >= 0) & (y == jnp.floor(y))), "counts")

    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the rates."""
        return jnp.exp(output)

    def outcome_log_probs(self, output: Float[Array, " classes"]) -> Float[Array, "labels outcomes"]:
        """Raise: the outcomes are not finitely many."""
        raise _not_finite(self)

    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        """Return the weighted sum of the diagonal matrix of rates."""
        return jnp.diag(weights @ jnp.exp(outputs))


def _not_finite(likelihood: AbstractLikelihood) -> ValueError:
    """Return the error that an entropy needs finitely many outcomes."""
    return ValueError(
        f"`likelihood` must have finitely many outcomes for an entropy; got {type(likelihood).__name__}. "
        "`predict.moments` gives the variance over the index."
    )


def _with_axis(y: Shaped[Array, "batch ..."], num_targets: int, what: str) -> Shaped[Array, "batch targets"]:
    """Return targets with an axis of `num_targets`, which a single one may lack."""
    if num_targets == 1 and y.ndim == 1:
        return y[:, None]
    if y.shape[1:] != (num_targets,):
        raise ValueError(f"`y` must hold {num_targets} {what} per example; got shape {y.shape} of {y.dtype}.")
    return y


def _as_real_vectors(y: Shaped[Array, "batch ..."], num_targets: int) -> Float[Array, "batch targets"]:
    """Return targets of a regression, which must be finite numbers."""
    what = "floating-point outputs"
    if not jnp.issubdtype(y.dtype, jnp.floating):
        raise ValueError(f"`y` must hold {num_targets} {what} per example; got shape {y.shape} of {y.dtype}.")
    return check_finite("y", _with_axis(y, num_targets, what))


def _as_vectors(
    y: Shaped[Array, "batch ..."], num_targets: int, wrong: Shaped[Array, "batch ..."], what: str
) -> Shaped[Array, "batch targets"]:
    """Return targets with an axis; raise where an entry is not one of `what`."""
    return require(_with_axis(y, num_targets, what), jnp.any(wrong), f"`y` must hold {what} only.")


CATEGORICAL = Categorical()


def target_log_probs(
    likelihood: AbstractLikelihood,
    outputs: Float[Array, "samples batch classes"],
    y: Shaped[Array, "batch ..."],
) -> Float[Array, "samples batch"]:
    """Return the log-probability of each target at each sample."""
    return jax.vmap(jax.vmap(likelihood.log_prob), in_axes=(0, None))(outputs, y)
