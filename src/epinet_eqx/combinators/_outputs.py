"""ENNs that transform the input or the outputs of another ENN."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from .._checks import Scalar, check_positive, check_scalar, check_shape, require
from .._enn import AbstractENN, Indices, check_enn
from .._tree import Frozen, cast_floats, unwrap
from ..indices import AbstractIndex, GaussianIndex, ScaledGaussianIndex, TupleIndex
from ..networks import AbstractNetwork


class AbstractWrapper(AbstractENN):
    """An ENN built from another ENN, whose index it shares."""

    enn: eqx.AbstractVar[AbstractENN | Frozen[AbstractENN]]

    def __check_init__(self):
        """Raise unless an ENN was given."""
        check_enn("enn", self.enn.content if isinstance(self.enn, Frozen) else self.enn)

    @property
    def index(self) -> AbstractIndex:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The index of the wrapped ENN."""
        return self.enn.content.index if isinstance(self.enn, Frozen) else self.enn.index


class Tempered(AbstractWrapper):
    """An ENN whose outputs are divided by a temperature: below one sharpens, above one flattens."""

    enn: AbstractENN
    temperature: Frozen[Float[Array, ""]]

    def __init__(self, enn: AbstractENN, temperature: Scalar):
        """Initialize with the ENN and its temperature, which may be traced: sweeping it compiles once."""
        self.enn = enn
        self.temperature = Frozen(check_scalar("temperature", temperature, minimum=1e-6))

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding of the ENN."""
        return self.enn.embed(x)

    def heads(self, embedding: PyTree[Array], zs: Indices) -> Float[Array, "samples classes"]:
        """Return the tempered outputs."""
        return self.enn.heads(embedding, zs) / self.temperature.value


class ClassProbs(AbstractWrapper):
    """A classifier as a regression: its outputs are the class probabilities."""

    enn: AbstractENN

    def __init__(self, enn: AbstractENN):
        """Initialize with the classifier."""
        self.enn = enn

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding of the classifier."""
        return self.enn.embed(x)

    def heads(self, embedding: PyTree[Array], zs: Indices) -> Float[Array, "samples classes"]:
        """Return the class probabilities."""
        return jax.nn.softmax(self.enn.heads(embedding, zs))


class WithNoiseScale(AbstractWrapper):
    r"""An ENN of means with one trained noise scale for all inputs: outputs $(f_\theta(x, z), \ln \sigma)$.

    Train it on `LogLoss(LearnedGaussian())`.
    """

    enn: AbstractENN
    log_scale: Float[Array, "..."]

    def __init__(self, enn: AbstractENN, scale: float | Float[Array, "..."] = 1.0):
        r"""Initialize with the ENN and the initial $\sigma$: one for all outputs, or a vector."""
        value = jnp.asarray(scale, dtype=float)
        self.enn = enn
        self.log_scale = jnp.log(require(value, ~jnp.all(value > 0), "`scale` must be positive."))

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding of the ENN."""
        return self.enn.embed(x)

    def heads(self, embedding: PyTree[Array], zs: Indices) -> Float[Array, "samples classes"]:
        """Return means and logarithms of the scales."""
        means = self.enn.heads(embedding, zs)
        if self.log_scale.ndim > 0:
            check_shape("scale", self.log_scale, means.shape[1:])
        return jnp.concatenate([means, jnp.broadcast_to(self.log_scale, means.shape)], axis=1)


class BradleyTerry(AbstractWrapper):
    r"""A reward model as a classifier of comparisons: $\hat P(a \succ b) = \mathrm{sigmoid}(r(a, z) - r(b, z))$.

    An input is a comparison, the options stacked along a leading axis; the outputs are their rewards, and the target is
    the position of the preferred one. The softmax of two rewards is the sigmoid of their difference (Bradley and Terry,
    1952); among more options it is Luce's choice. So `CrossEntropy`, `fit`, metrics and acquisition functions apply to
    comparisons as to any classification, and `enn` is the trained reward model. Rewards are known up to a constant.
    """

    enn: AbstractENN

    def __init__(self, enn: AbstractENN):
        """Initialize with the ENN of the reward, which has one output."""
        self.enn = enn

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding of each option."""
        return jax.vmap(self.enn.embed)(x)

    def heads(self, embedding: PyTree[Array], zs: Indices) -> Float[Array, "samples options"]:
        """Return the rewards of the options, all at the same indices."""
        rewards = jax.vmap(lambda option: self.enn.heads(option, zs), out_axes=1)(embedding)
        if rewards.shape[2] != 1:
            raise ValueError(f"`enn` must have one output, the reward of an option; got {rewards.shape[2]}.")
        return rewards[:, :, 0]


class WithNoiseEmbedding(NamedTuple):
    """What all indices share: the embedding of the ENN of the means, and the logarithms of the scales."""

    enn: PyTree[Array]
    log_scale: Float[Array, " targets"]


class WithNoiseNetwork(AbstractWrapper):
    r"""An ENN of means with a network of the noise: outputs $(f_\theta(x, z), \ln \sigma_\eta(x))$.

    For noise that differs between inputs. It does not depend on the index, and priors of the ENN do not reach it. Train
    it on `LogLoss(LearnedGaussian())`.
    """

    enn: AbstractENN
    noise: Callable[[PyTree[Array]], Float[Array, " targets"]]

    def __init__(self, enn: AbstractENN, noise: Callable[[PyTree[Array]], Float[Array, " targets"]]):
        r"""Initialize with the ENN, and the network that maps the same input to $\ln \sigma$ of each of its outputs."""
        self.enn = enn
        self.noise = noise

    def embed(self, x: PyTree[Array]) -> WithNoiseEmbedding:
        """Return the embedding of the ENN and the logarithms of the scales."""
        return WithNoiseEmbedding(self.enn.embed(x), self.noise(x))

    def heads(self, embedding: WithNoiseEmbedding, zs: Indices) -> Float[Array, "samples classes"]:
        """Return means and logarithms of the scales."""
        means = self.enn.heads(embedding.enn, zs)
        check_shape("noise", embedding.log_scale, means.shape[1:])
        return jnp.concatenate([means, jnp.broadcast_to(embedding.log_scale, means.shape)], axis=1)


class Marginalized(AbstractENN):
    r"""Outputs $\ln \frac{1}{S} \sum_s \mathrm{softmax}(f_\theta(x, z_s))$: a classifier's average prediction.

    Its index is a tuple of `num_samples` indices. `CrossEntropy` of it is the log loss of the average prediction, the
    training loss of methods with noise in their logits, instead of the average log loss of Algorithm 1. Train this with
    `num_index_samples=1`, then evaluate its `enn`.
    """

    enn: AbstractENN
    index: TupleIndex

    def __init__(self, enn: AbstractENN, num_samples: int):
        """Initialize with a classifier and the number of indices to average over."""
        check_positive("num_samples", num_samples)
        self.enn = enn
        self.index = TupleIndex(enn.index, num_samples)

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding of the ENN."""
        return self.enn.embed(x)

    def heads(
        self, embedding: PyTree[Array], zs: Shaped[Array, "tuples samples ..."]
    ) -> Float[Array, "tuples classes"]:
        """Return the logarithms of the average predictions over many tuples."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))
        log_probs = jax.nn.log_softmax(jax.vmap(lambda z: self.enn.heads(embedding, z))(zs))
        return jax.nn.logsumexp(log_probs, axis=1) - jnp.log(float(self.index.length))


class MirroredEmbedding(NamedTuple):
    """What all indices share: the embedding of the ENN and its output at index zero."""

    enn: PyTree[Array]
    base: Float[Array, " classes"]


class Mirrored(AbstractWrapper):
    r"""The part of an ENN that is odd in $z$, around its output at zero: $f(x, 0) + \frac{c}{2} (f(x, z) - f(x, -z))$.

    Over a symmetric index its mean is $f(x, 0)$ exactly; for an epinet that is the output of the base. On features of a
    base that fits its training data, training pushes the mean of an epinet toward overconfidence on other data; this
    removes that mean. Tune the scale $c$ and a temperature on held-out data: they split the uncertainty between the
    index and each prediction.
    """

    enn: AbstractENN
    scale: Frozen[Float[Array, ""]]

    def __init__(self, enn: AbstractENN, scale: Scalar = 1.0):
        """Initialize.

        Args:
            enn: a trained ENN with a Gaussian index, which is symmetric about zero.
            scale: multiplies the odd part; may be traced, so that sweeping it compiles once.
        """
        if not isinstance(enn.index, GaussianIndex | ScaledGaussianIndex):
            raise ValueError(
                f"`enn` must have an index that is symmetric about 0, a Gaussian one; got {type(enn.index).__name__}."
            )
        self.enn = enn
        self.scale = Frozen(check_scalar("scale", scale, minimum=0.0))

    def embed(self, x: PyTree[Array]) -> MirroredEmbedding:
        """Return the embedding of the ENN and its output at index zero."""
        embedding = self.enn.embed(x)
        return MirroredEmbedding(embedding, self.enn.head(embedding, jnp.zeros(self.enn.index.shape)))

    def heads(self, embedding: MirroredEmbedding, zs: Float[Array, "samples index"]) -> Float[Array, "samples classes"]:
        """Return the outputs at many indices."""
        odd = (self.enn.heads(embedding.enn, zs) - self.enn.heads(embedding.enn, -zs)) / 2
        return embedding.base[None, :] + self.scale.value * odd


class OnTrunk(AbstractWrapper):
    """An ENN whose input is the features of a network: `embed` runs the trunk, then embeds its features.

    The two are trained together unless the trunk is `Frozen`. The trunk's own output is not used (see
    `networks.headless`). A trunk with running statistics is trained together with the bare ENN; `with_statistics` then
    makes it a trunk for this class.
    """

    trunk: AbstractNetwork | Frozen[AbstractNetwork]
    enn: AbstractENN

    def __init__(self, trunk: AbstractNetwork | Frozen[AbstractNetwork], enn: AbstractENN):
        """Initialize with a network, wrapped in `Frozen` to keep its weights fixed, and an ENN on its features."""
        self.trunk = trunk
        self.enn = enn

    def features(self, x: PyTree[Array]) -> Float[Array, " features"]:
        """Return the features of one example, the input of the ENN."""
        return unwrap(self.trunk).with_features(x)[1]

    def with_enn(self, enn: AbstractENN) -> "OnTrunk":
        """Return another ENN on the same trunk."""
        return OnTrunk(self.trunk, enn)

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Run the trunk and embed its features."""
        return self.enn.embed(self.features(x))

    def heads(self, embedding: PyTree[Array], zs: Indices) -> Float[Array, "samples classes"]:
        """Return the outputs of the ENN."""
        return self.enn.heads(embedding, zs)


class InPrecision(AbstractWrapper):
    """An ENN that computes in another precision than that of its parameters, and returns single precision.

    Gradients come back in the precision of the parameters. Bootstraps see the index in full precision, so they do not
    change.
    """

    enn: AbstractENN
    dtype: np.dtype = eqx.field(static=True)

    def __init__(self, enn: AbstractENN, dtype: np.dtype):
        """Initialize with the ENN and the floating-point type it computes in."""
        self.enn = enn
        self.dtype = dtype

    def _run(self, stage: Callable[..., Any], *inputs: Any) -> Any:
        """Return `stage(enn, *inputs)` in reduced precision."""
        # Some ENNs create arrays in single precision; operations with those are promoted to it.
        with jax.numpy_dtype_promotion("standard"):
            return stage(cast_floats(self.enn, self.dtype), *cast_floats(inputs, self.dtype))

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding in reduced precision."""
        return self._run(lambda enn, x: enn.embed(x), x)

    def heads(self, embedding: PyTree[Array], zs: Indices) -> Float[Array, "samples classes"]:
        """Return the outputs in single precision."""
        return self._run(lambda enn, embedding, zs: enn.heads(embedding, zs), embedding, zs).astype(jnp.float32)
