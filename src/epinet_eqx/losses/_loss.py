"""The losses of Algorithm 1, and their averages over a batch and over indices (Section 4.2)."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._checks import Scalar, check_finite, check_scalar, check_share, is_traced
from .._enn import AbstractENN, Indices
from .._likelihoods import CATEGORICAL, AbstractLikelihood, Gaussian
from .._tree import trainable_mask
from ..indices import AbstractIndex
from ._batch import Batch
from ._bootstrap import AbstractBootstrap
from ._penalty import L2, AbstractPenalty, AnchoredL2, PriorShare, choose_penalty


class AbstractLoss(eqx.Module):
    r"""A loss $\ell(\theta, z, x_i, y_i, i)$ of one example at one index, the form of Algorithm 1.

    It is `weight * (data_loss + penalty)`. The parts are separate methods, so that an average over a batch runs the
    base network once per input and the penalty once per index (see `mean_loss`).
    """

    penalty: eqx.AbstractVar[AbstractPenalty]
    bootstrap: eqx.AbstractVar[AbstractBootstrap | None]
    noise_key: eqx.AbstractVar[PRNGKeyArray | None]

    def __check_init__(self):
        """Raise unless the bootstrap is one."""
        if not isinstance(self.bootstrap, AbstractBootstrap | None):
            raise ValueError(
                f"`bootstrap` must be one, such as `BernoulliBootstrap(0.5, key=key)`; got "
                f"{type(self.bootstrap).__name__}."
            )

    @abc.abstractmethod
    def data_loss(
        self, output: Float[Array, " classes"], y: Shaped[Array, "..."], score: Float[Array, " classes"]
    ) -> Float[Array, ""]:
        """Return the loss of an output, without penalty and weight.

        Args:
            output: output of the ENN at one input and one index.
            y: the target.
            score: standard normal scores that perturb the target; zeros if `noise_key` is None.
        """

    @abc.abstractmethod
    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> None:
        """Raise if an ENN with this many outputs cannot be trained on the targets `y`."""

    def weight(self, index: AbstractIndex, z: PyTree[Shaped[Array, "..."]], i: Int[Array, ""]) -> Float[Array, ""]:
        """Return the bootstrap weight of example `i` at index `z`; one without a bootstrap."""
        if self.bootstrap is None:
            return jnp.ones(())
        return self.bootstrap.weight(index.score(z, key=jr.fold_in(self.bootstrap.key, i)))

    def score(
        self, index: AbstractIndex, z: PyTree[Shaped[Array, "..."]], i: Int[Array, ""], num_outputs: int
    ) -> Float[Array, " classes"]:
        r"""Return the scores that `data_loss` gets for example `i` at index `z`: $c_i^\top z$, one $c$ per output.

        Output $k$ of example $i$ is observation $iC + k$, so a single output has the $c_i$ of Eq. (9).
        """
        if self.noise_key is None:
            return jnp.zeros(num_outputs)
        key = self.noise_key
        observations = i * num_outputs + jnp.arange(num_outputs)
        return jax.vmap(lambda n: index.score(z, key=jr.fold_in(key, n)))(observations)

    def __call__(
        self,
        enn: AbstractENN,
        z: PyTree[Shaped[Array, "..."]],
        x: PyTree[Array],
        y: Shaped[Array, "..."],
        i: Int[Array, ""],
    ) -> Float[Array, ""]:
        """Return the loss of example number `i` at index `z`."""
        output = enn(x, z)
        data = self.data_loss(output, y, self.score(enn.index, z, i, output.shape[0]))
        penalty = self.penalty(enn, eqx.filter(enn, trainable_mask(enn)), z)
        return self.weight(enn.index, z, i) * (data + penalty)


class LogLoss(AbstractLoss):
    r"""$-\ln \hat P(y_i \mid f_\theta(x_i, z)) + \lambda \|\theta\|_2^2$ for any likelihood."""

    likelihood: AbstractLikelihood
    penalty: AbstractPenalty
    bootstrap: AbstractBootstrap | None
    noise_key: PRNGKeyArray | None

    def __init__(
        self,
        likelihood: AbstractLikelihood,
        l2: Scalar = 0.0,
        bootstrap: AbstractBootstrap | None = None,
        penalty: AbstractPenalty | None = None,
    ):
        r"""Initialize the loss.

        Args:
            likelihood: how an output becomes a distribution of the target.
            l2: $\lambda$, for the sum of squares over trainable parameters.
            bootstrap: weights of the examples.
            penalty: another penalty in place of the sum of squares.
        """
        if not isinstance(likelihood, AbstractLikelihood):
            raise ValueError(f"`likelihood` must be one, such as `Categorical()`; got {type(likelihood).__name__}.")
        self.likelihood = likelihood
        self.penalty = choose_penalty(l2, penalty)
        self.bootstrap = bootstrap
        self.noise_key = None

    def data_loss(
        self, output: Float[Array, " classes"], y: Shaped[Array, "..."], score: Float[Array, " classes"]
    ) -> Float[Array, ""]:
        """Return minus the log-probability of the target."""
        return -self.likelihood.log_prob(output, y)

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> None:
        """Raise unless `y` holds targets of the likelihood."""
        self.likelihood.check_targets(y, num_outputs)


class FunctionLoss(AbstractLoss):
    r"""A function of an output and its target as the data loss: `FunctionLoss(lambda output, y: ...)`."""

    function: Callable[[Float[Array, " classes"], Shaped[Array, "..."]], Float[Array, ""]]
    penalty: AbstractPenalty
    bootstrap: AbstractBootstrap | None
    noise_key: PRNGKeyArray | None

    def __init__(
        self,
        function: Callable[[Float[Array, " classes"], Shaped[Array, "..."]], Float[Array, ""]],
        l2: Scalar = 0.0,
        bootstrap: AbstractBootstrap | None = None,
        penalty: AbstractPenalty | None = None,
    ):
        """Initialize with the function; the other arguments are those of `LogLoss`."""
        self.function = function
        self.penalty = choose_penalty(l2, penalty)
        self.bootstrap = bootstrap
        self.noise_key = None

    def data_loss(
        self, output: Float[Array, " classes"], y: Shaped[Array, "..."], score: Float[Array, " classes"]
    ) -> Float[Array, ""]:
        """Return the value of the function."""
        return self.function(output, y)

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> None:
        """Raise unless the floating-point numbers in `y` are finite."""
        check_finite("y", y)


class CrossEntropy(AbstractLoss):
    r"""Eq. (7): $-\ln \mathrm{softmax}(f_\theta(x_i, z))_{y_i} + \lambda \|\theta\|_2^2$; with a bootstrap, Eq. (8).

    As in Eq. (8), the weight of a bootstrap multiplies the penalty too.
    """

    label_smoothing: Float[Array, ""]
    penalty: AbstractPenalty
    bootstrap: AbstractBootstrap | None
    noise_key: PRNGKeyArray | None

    def __init__(
        self,
        l2: Scalar = 0.0,
        label_smoothing: Scalar = 0.0,
        bootstrap: AbstractBootstrap | None = None,
        penalty: AbstractPenalty | None = None,
    ):
        r"""Initialize the loss; its scalars are arrays, so that sweeping them compiles once.

        Args:
            l2: $\lambda$, for the sum of squares over trainable parameters.
            label_smoothing: total probability $\epsilon$ that is spread over all $C$ classes, so that a wrong class has
                $\epsilon / C$.
            bootstrap: weights of the examples, `BernoulliBootstrap` for Eq. (8).
            penalty: another penalty in place of the sum of squares.
        """
        self.label_smoothing = check_share("label_smoothing", label_smoothing)
        self.penalty = choose_penalty(l2, penalty)
        self.bootstrap = bootstrap
        self.noise_key = None

    def data_loss(
        self, output: Float[Array, " classes"], y: Int[Array, ""], score: Float[Array, " classes"]
    ) -> Float[Array, ""]:
        """Return the (smoothed) log loss of the label `y`."""
        if y.ndim != 0 or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"`y` must hold one integer label per example; got shape {y.shape} of {y.dtype} for one.")
        # In a type that is too small for the classes, several of them would wrap around to the label.
        if output.shape[0] > jnp.iinfo(y.dtype).max:
            y = y.astype(jnp.int32)
        log_probs = jax.nn.log_softmax(output)
        classes = jnp.arange(output.shape[0], dtype=y.dtype)
        labels = (classes == y).astype(output.dtype)
        smoothed = (1 - self.label_smoothing) * labels + self.label_smoothing / output.shape[0]
        loss = -jnp.sum(smoothed * log_probs)
        # A label outside the classes must not pass for a perfect prediction; NaN stops training and names the step.
        return jnp.where((y >= 0) & (y < output.shape[0]), loss, jnp.nan)

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> None:
        """Raise unless `y` holds one class per example."""
        CATEGORICAL.check_targets(y, num_outputs)


class SquaredLoss(AbstractLoss):
    r"""Eq. (9): $(f_\theta(x_i, z) - y_i - \sigma c_i^\top z)^2 + \lambda \|\theta\|_2^2$, summed over outputs.

    Without noise it is the plain squared loss. Each output of an example has its own $c$.
    """

    noise_scale: Float[Array, ""]
    penalty: AbstractPenalty
    bootstrap: AbstractBootstrap | None
    noise_key: PRNGKeyArray | None

    def __init__(
        self,
        l2: Scalar = 0.0,
        noise_scale: Scalar = 0.0,
        bootstrap: AbstractBootstrap | None = None,
        penalty: AbstractPenalty | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ):
        r"""Initialize the loss; its scalars are arrays, so that sweeping them compiles once.

        Args:
            l2: $\lambda$, for the sum of squares over trainable parameters.
            noise_scale: $\sigma$, the standard deviation of the perturbation of the targets.
            bootstrap: weights of the examples, in addition to the perturbation or instead of it.
            penalty: another penalty in place of the sum of squares.
            key: random key of the perturbation; needed with a `noise_scale` above zero.
        """
        value = check_scalar("noise_scale", noise_scale, minimum=0.0)
        if key is None and (is_traced(value) or float(value) > 0):
            found = "" if is_traced(value) else f", {float(value)}"
            raise ValueError(f"`key` must be given with a `noise_scale` above zero{found}; got None.")
        self.noise_scale = value
        self.penalty = choose_penalty(l2, penalty)
        self.bootstrap = bootstrap
        self.noise_key = key

    def data_loss(
        self, output: Float[Array, " classes"], y: Float[Array, "..."], score: Float[Array, " classes"]
    ) -> Float[Array, ""]:
        """Return the squared distance of the output to the perturbed target."""
        allowed = (output.shape, ()) if output.shape == (1,) else (output.shape,)
        if y.shape not in allowed or not jnp.issubdtype(y.dtype, jnp.floating):
            raise ValueError(
                f"`y` must hold {output.shape[0]} floating-point outputs per example; got shape {y.shape} of {y.dtype} "
                "for one."
            )
        target = y.reshape(output.shape)
        return jnp.sum(jnp.square(output - target - self.noise_scale * score))

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> None:
        """Raise unless `y` holds one finite number per example and output."""
        Gaussian(1.0).check_targets(y, num_outputs)


def anchored(loss: AbstractLoss, enn: AbstractENN) -> AbstractLoss:
    """Return the loss with its `L2` penalty pulling toward the trainable parameters of `enn` instead of zero."""
    if not isinstance(loss.penalty, L2):
        raise ValueError(f"`loss` must have an `L2` penalty to be anchored; got {type(loss.penalty).__name__}.")
    penalty = AnchoredL2(loss.penalty.scale, eqx.filter(enn, trainable_mask(enn)))
    return eqx.tree_at(lambda loss: loss.penalty, loss, penalty)


def share_prior(loss: AbstractLoss, num_observations: Float[Array, ""]) -> AbstractLoss:
    """Return the loss with its penalty divided by the number of observations."""
    return eqx.tree_at(lambda loss: loss.penalty, loss, PriorShare(loss.penalty, num_observations))


def mean_loss(
    loss: AbstractLoss, enn: AbstractENN, zs: Indices, batch: Batch, *, params: PyTree | None = None
) -> Float[Array, ""]:
    """Return the mean of `loss(enn, z, x, y, i)` over all indices `zs` and all examples of the batch.

    The same value as a double loop over single losses, through `embed` and `heads`: the base network runs once per
    input and the penalty once per index, or only once if it does not depend on the index.

    Args:
        loss: the loss.
        enn: the ENN.
        zs: index samples.
        batch: examples with their numbers.
        params: the part of `enn` that is penalized; by default its trainable part.
    """
    if params is None:
        params = eqx.filter(enn, trainable_mask(enn))

    def example(
        x: PyTree[Array], y: Shaped[Array, "..."], i: Int[Array, ""]
    ) -> tuple[Float[Array, " samples"], Float[Array, " samples"]]:
        outputs = enn.heads(enn.embed(x), zs)
        scores = jax.vmap(lambda z: loss.score(enn.index, z, i, outputs.shape[-1]))(zs)
        data = jax.vmap(lambda output, score: loss.data_loss(output, y, score))(outputs, scores)
        return jax.vmap(lambda z: loss.weight(enn.index, z, i))(zs), data

    # Paper: a sum (Algorithm 1, line 4); here: the mean, because the learning rate then does not depend on sizes.
    weights, data = jax.vmap(example)(batch.x, batch.y, batch.i)
    penalties = jax.vmap(lambda z: loss.penalty(enn, params, z))(zs)
    return jnp.mean(weights * (data + penalties[None, :]))


def mean_data_loss(
    loss: AbstractLoss, enn: AbstractENN, zs: Indices, batch: Batch, *, chunk_size: int = 256
) -> Float[Array, ""]:
    """Return the mean data loss on held-out data: without penalty, bootstrap and perturbed targets.

    The batch is processed in chunks of `chunk_size` examples, so memory does not grow with it.
    """

    def example(xy: tuple[PyTree[Array], Shaped[Array, "..."]]) -> Float[Array, ""]:
        x, y = xy
        outputs = enn.heads(enn.embed(x), zs)
        return jnp.mean(jax.vmap(lambda output: loss.data_loss(output, y, jnp.zeros_like(output)))(outputs))

    return jnp.mean(jax.lax.map(example, (batch.x, batch.y), batch_size=chunk_size))
