"""Likelihoods: how an output of a network becomes a distribution of the target."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from ._checks import check_finite, check_labels, check_positive, check_scalar, check_shape, require

_MIN_SCALE = 1e-12


class AbstractLikelihood(eqx.Module):
    """The distribution of the target of one example, given the output of a network there.

    Losses, log-losses and joint predictions need no more than this. What else a likelihood can do it says by its other
    base classes: `AbstractOutcomes` for entropies, `AbstractNumeric` for intervals, `AbstractFisher` for Laplace.

    Attributes:
        has_classes: whether the target is one of as many classes as there are outputs, so that an error rate exists.
    """

    has_classes: ClassVar[bool] = False

    @abc.abstractmethod
    def log_prob(self, output: Float[Array, " classes"], y: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the log-probability (or log-density) of the target `y`, in nats."""

    @abc.abstractmethod
    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the expected target: class probabilities, or the mean of a regression."""

    @abc.abstractmethod
    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Shaped[Array, "batch ..."]:
        """Return `y` in the form that `log_prob` takes; raise if a network with `num_outputs` cannot predict it."""


class AbstractOutcomes(AbstractLikelihood):
    """A likelihood of labels with finitely many outcomes."""

    @abc.abstractmethod
    def outcome_log_probs(self, output: Float[Array, " classes"]) -> Float[Array, "labels outcomes"]:
        """Return the log-probability of each outcome of each label."""


class AbstractNumeric(AbstractLikelihood):
    """A likelihood of numbers, each with a distribution function; it takes one finite number per target.

    Attributes:
        outputs_per_target: how many outputs describe one target.
        is_discrete: whether the targets are integers.
    """

    outputs_per_target: ClassVar[int] = 1
    is_discrete: ClassVar[bool] = False

    @abc.abstractmethod
    def cdf(self, output: Float[Array, " classes"], y: Float[Array, " targets"]) -> Float[Array, " targets"]:
        """Return the probability that each target is at most `y`."""

    def num_targets(self, num_outputs: int) -> int:
        """Return how many targets as many outputs describe."""
        if num_outputs % self.outputs_per_target != 0:
            raise ValueError(
                f"`enn` must have a multiple of {self.outputs_per_target} outputs for a `{type(self).__name__}` "
                f"likelihood, which describe one target; got {num_outputs}."
            )
        return num_outputs // self.outputs_per_target

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Shaped[Array, "batch targets"]:
        """Return `y`, one finite number per example and target, with an axis of targets."""
        num_targets = self.num_targets(num_outputs)
        if self.is_discrete:
            return _as_vectors(y, num_targets, ~((y >= 0) & (y == jnp.floor(y))), "counts")
        return _as_real_vectors(y, num_targets)


class AbstractFisher(AbstractLikelihood):
    """A likelihood with a Fisher information of its output, which a Laplace approximation needs.

    Attributes:
        is_conjugate: whether a linear layer with a Gaussian prior has a Gaussian posterior, in closed form.
    """

    is_conjugate: ClassVar[bool] = False

    @abc.abstractmethod
    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        """Return the Fisher information of the output, summed over a batch with these weights."""


def check_classes(num_outputs: int) -> None:
    """Raise for a single output, whose softmax is always one."""
    if num_outputs < 2:
        raise ValueError(
            f"`enn` must have at least 2 outputs for a `Categorical` likelihood; got {num_outputs}. "
            "For a regression or several labels, say so by `likelihood`."
        )


class Categorical(AbstractOutcomes, AbstractFisher):
    r"""Classification: $\hat P(y) = \mathrm{softmax}(\text{output})_y$ (Section 3)."""

    has_classes: ClassVar[bool] = True

    def log_prob(self, output: Float[Array, " classes"], y: Shaped[Array, ""]) -> Float[Array, ""]:
        """Return the log-probability of the class `y`."""
        # Never the logarithm of a softmax, which is minus infinity beyond a logit gap of about 100.
        return jax.nn.log_softmax(output)[y]

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Shaped[Array, " batch"]:
        """Return `y`, which must hold one class per example."""
        if y.ndim != 1 or not jnp.issubdtype(y.dtype, jnp.integer):
            advice = " `y.astype(int)` makes classes 0 and 1 of them." if y.dtype == bool else ""
            raise ValueError(f"`y` must hold one integer label per example; got shape {y.shape} of {y.dtype}.{advice}")
        check_classes(num_outputs)
        # Small types cannot hold the number of classes; large ones would wrap around into the classes.
        wide = y if y.dtype.itemsize > 4 else y.astype(jnp.int32)
        return check_labels("y", wide, num_outputs).astype(jnp.int32)

    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the class probabilities."""
        # Of the log-probabilities, which a loss needs as well: a softmax would store its exponentials.
        return jnp.exp(jax.nn.log_softmax(output))

    def outcome_log_probs(self, output: Float[Array, " classes"]) -> Float[Array, "labels outcomes"]:
        """Return the log-probabilities of the classes of the one label."""
        check_classes(output.shape[0])
        return jax.nn.log_softmax(output)[None]

    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        r"""Return the weighted sum of $\mathrm{diag}(p) - p p^\top$."""
        probs = jax.nn.softmax(outputs)
        return jnp.diag(weights @ probs) - (weights[:, None] * probs).T @ probs


class Bernoulli(AbstractOutcomes, AbstractFisher):
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


class PerPosition(AbstractOutcomes):
    """Labels at several positions of one example, such as the tokens of a text: independent given the output.

    The output holds those of all positions one after another: a base with logits of shape (positions, classes) returns
    `jnp.ravel(logits)`. A target has shape `(positions,)` for `Categorical`, `(positions, labels)` for `Bernoulli`.
    """

    likelihood: AbstractOutcomes
    num_positions: int = eqx.field(static=True)

    def __init__(self, likelihood: AbstractOutcomes, num_positions: int):
        """Initialize with the likelihood at one position, and the number of positions."""
        if not isinstance(likelihood, AbstractOutcomes):
            raise ValueError(
                f"`likelihood` must be one of labels, such as `Categorical()`; got {type(likelihood).__name__}. A "
                "regression with many targets needs no other likelihood than one with few."
            )
        check_positive("num_positions", num_positions)
        self.likelihood = likelihood
        self.num_positions = num_positions

    def _split(self, output: Float[Array, " outputs"]) -> Float[Array, "positions classes"]:
        """Return the outputs of each position."""
        if output.shape[0] % self.num_positions != 0:
            raise ValueError(
                f"`enn` must have a multiple of {self.num_positions} outputs, the number of positions; "
                f"got {output.shape[0]}."
            )
        return output.reshape(self.num_positions, -1)

    def log_prob(self, output: Float[Array, " outputs"], y: Shaped[Array, "positions ..."]) -> Float[Array, ""]:
        """Return the log-probability of the labels of all positions."""
        return jnp.sum(jax.vmap(self.likelihood.log_prob)(self._split(output), y))

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Shaped[Array, "batch positions ..."]:
        """Return `y`, which must hold a target at each position of each example."""
        if y.ndim < 2 or y.shape[1] != self.num_positions:
            raise ValueError(
                f"`y` must hold a target at each of {self.num_positions} positions per example; got shape {y.shape}."
            )
        num_classes = self._split(jnp.zeros(num_outputs)).shape[1]
        checked = self.likelihood.check_targets(y.reshape(-1, *y.shape[2:]), num_classes)
        return checked.reshape(*y.shape[:2], *checked.shape[1:])

    def mean(self, output: Float[Array, " outputs"]) -> Float[Array, " targets"]:
        """Return the expected targets of all positions, one after another."""
        return jnp.ravel(jax.vmap(self.likelihood.mean)(self._split(output)))

    def outcome_log_probs(self, output: Float[Array, " outputs"]) -> Float[Array, "labels outcomes"]:
        """Return the log-probabilities of the outcomes of each label of each position."""
        found = jax.vmap(self.likelihood.outcome_log_probs)(self._split(output))
        return found.reshape(-1, found.shape[-1])


class Gaussian(AbstractNumeric, AbstractFisher):
    r"""Regression with known noise: $y_k \sim N(\text{output}_k, \sigma_k^2)$, independently."""

    is_conjugate: ClassVar[bool] = True
    scale: Float[Array, "..."]

    def __init__(self, scale: float | Float[Array, "..."]):
        r"""Initialize with the standard deviation $\sigma$ of all targets, or a vector with that of each.

        It is an array, so that sweeping it compiles once.
        """
        value = jnp.asarray(scale, dtype=float)
        if value.ndim > 1:
            raise ValueError(f"`scale` must be a number, or a vector with one per target; got shape {value.shape}.")
        if value.ndim == 0:
            self.scale = check_scalar("scale", value, minimum=_MIN_SCALE)
        else:
            wrong = ~jnp.all(jnp.isfinite(value) & (value >= _MIN_SCALE))
            self.scale = require(value, wrong, f"`scale` must be finite and at least {_MIN_SCALE:g} everywhere.")

    def _scale_of(self, output: Float[Array, " classes"]) -> Float[Array, "..."]:
        """Return the scale; a vector must have one entry per output, or it would be broadcast against a single one."""
        if self.scale.ndim > 0:
            check_shape("scale", self.scale, output.shape)
        return self.scale

    def log_prob(self, output: Float[Array, " classes"], y: Float[Array, " classes"]) -> Float[Array, ""]:
        """Return the log-density of the target vector `y`."""
        scale = self._scale_of(output)
        standardized = (y - output) / scale
        return jnp.sum(-0.5 * jnp.square(standardized) - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi))

    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the output."""
        return output

    def cdf(self, output: Float[Array, " classes"], y: Float[Array, " targets"]) -> Float[Array, " targets"]:
        """Return the probability that each target is at most `y`."""
        return jax.scipy.special.ndtr((y - output) / self._scale_of(output))

    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        r"""Return the weighted sum of $I / \sigma^2$."""
        return jnp.diag(jnp.sum(weights) / jnp.broadcast_to(self._scale_of(outputs[0]), outputs.shape[1:]) ** 2)


class LearnedGaussian(AbstractNumeric, AbstractFisher):
    r"""Regression with learned noise: $y_k \sim N(\mu_k, \sigma_k^2)$ for the output $(\mu, \ln \sigma)$.

    The second half of the outputs is the logarithm of the scale, one per input and dimension of the target. For one
    scale that all inputs share, wrap the ENN of the mean in `combinators.WithNoiseScale`.
    """

    outputs_per_target: ClassVar[int] = 2

    def log_prob(self, output: Float[Array, " classes"], y: Float[Array, "..."]) -> Float[Array, ""]:
        """Return the log-density of the target vector `y`."""
        mean, log_scale = jnp.split(output, 2)
        standardized = (y - mean) * jnp.exp(-log_scale)
        return jnp.sum(-0.5 * jnp.square(standardized) - log_scale - 0.5 * jnp.log(2 * jnp.pi))

    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the first half of the outputs."""
        return jnp.split(output, 2)[0]

    def cdf(self, output: Float[Array, " classes"], y: Float[Array, " targets"]) -> Float[Array, " targets"]:
        """Return the probability that each target is at most `y`."""
        mean, log_scale = jnp.split(output, 2)
        return jax.scipy.special.ndtr((y - mean) * jnp.exp(-log_scale))

    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        r"""Return the weighted sum of $\mathrm{diag}(\sigma^{-2}, 2)$."""
        log_scale = jnp.split(outputs, 2, axis=1)[1]
        return jnp.diag(weights @ jnp.concatenate([jnp.exp(-2 * log_scale), jnp.full_like(log_scale, 2.0)], axis=1))


class Poisson(AbstractNumeric, AbstractFisher):
    r"""Counts: $y_k \sim \mathrm{Poisson}(e^{\text{output}_k})$, independently."""

    is_discrete: ClassVar[bool] = True

    def log_prob(self, output: Float[Array, " classes"], y: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the log-probability of the vector `y` of counts."""
        counts = y.astype(output.dtype)
        some = jnp.maximum(counts, 1)
        # Rate and factorial nearly cancel: at a count of a million the plain sum is off by one in single precision. The
        # deviance from the rate, and what the factorial has beyond y log y - y (Stirling), are small by themselves.
        log_ratio = output - jnp.log(some)
        deviance = some * (jnp.expm1(log_ratio) - log_ratio)
        few = jax.scipy.special.gammaln(some + 1) - some * jnp.log(some) + some
        many = jnp.log(2 * jnp.pi * some) / 2 + 1 / (12 * some)
        return jnp.sum(jnp.where(counts == 0, -jnp.exp(output), -deviance - jnp.where(some < 30, few, many)))

    def mean(self, output: Float[Array, " classes"]) -> Float[Array, " targets"]:
        """Return the rates."""
        return jnp.exp(output)

    def cdf(self, output: Float[Array, " classes"], y: Float[Array, " targets"]) -> Float[Array, " targets"]:
        """Return the probability that each target is at most `y`."""
        count, rate = jnp.maximum(jnp.floor(y), 0.0) + 1, jnp.exp(output)
        # The series is off by 1e-4 at 300 and by almost 1 at a million in single precision; Wilson and Hilferty's
        # cube root is off by 2e-5 at 300, and by less beyond.
        most = 300.0 if jnp.finfo(output.dtype).eps > 1e-10 else 1e5
        few = jax.scipy.special.gammaincc(jnp.minimum(count, most), rate)
        root = jnp.expm1(jnp.log1p((rate - count) / count) / 3)
        many = jax.scipy.special.ndtr(-3 * jnp.sqrt(count) * (root + 1 / (9 * count)))
        return jnp.where(y < 0, jnp.zeros_like(few), jnp.where(count <= most, few, many))

    def fisher(
        self, outputs: Float[Array, "batch classes"], weights: Float[Array, " batch"]
    ) -> Float[Array, "classes classes"]:
        """Return the weighted sum of the diagonal matrix of rates."""
        return jnp.diag(weights @ jnp.exp(outputs))


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


def check_numeric(likelihood: AbstractLikelihood) -> AbstractNumeric:
    """Return `likelihood`, which must be one of numbers, with a distribution function."""
    if not isinstance(likelihood, AbstractNumeric):
        raise ValueError(
            "`likelihood` must be one of numbers, such as `Gaussian(scale)`, for an interval; "
            f"got {type(likelihood).__name__}."
        )
    return likelihood


def target_log_probs(
    likelihood: AbstractLikelihood,
    outputs: Float[Array, "samples batch classes"],
    y: Shaped[Array, "batch ..."],
) -> Float[Array, "samples batch"]:
    """Return the log-probability of each target at each sample."""
    return jax.vmap(jax.vmap(likelihood.log_prob), in_axes=(0, None))(outputs, y)
