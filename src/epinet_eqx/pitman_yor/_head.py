"""A classifier as an ENN whose marginal predictions are the classifier's own."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from .._checks import as_real_array, check_finite, check_positive, check_scalar, check_shape, num_examples
from .._draws import map_batches
from .._enn import AbstractENN
from .._tree import Frozen, unwrap
from ..indices import GaussianIndex
from ..networks import AbstractNetwork, as_network, trace_base
from ._parts import AbstractAlpha, ConstantAlpha, FourierField
from ._quantile import noise_series, series_noise


class PitmanYorEmbedding(NamedTuple):
    """What all indices share: tempered logits, `alpha` and its noise as a series, the unit vector of the field."""

    logits: Float[Array, " classes"]
    alpha: Float[Array, ""]
    field: Float[Array, " field"]
    series: Float[Array, " coefficients"]


class PitmanYor(AbstractENN):
    r"""$f(x, z) = \mu(x) / (T \alpha) + \log S(x, z)$ with positive $\alpha$-stable $S$, independent between classes.

    The average over the index of $\mathrm{softmax}(f(x, z))$ is exactly $\mathrm{softmax}(\mu(x) / T)$, whatever
    $\alpha$: `alpha` says which share of that uncertainty is aleatoric. At 1 the ENN is its base; toward 0 each index
    is certain of one class. A Gaussian field per class over the features makes $S$ similar where inputs are similar.
    """

    base: AbstractNetwork | Frozen[AbstractNetwork]
    alpha: AbstractAlpha | Frozen[AbstractAlpha]
    temperature: Frozen[Float[Array, ""]]
    field: FourierField
    index: GaussianIndex
    num_classes: int = eqx.field(static=True)

    def __init__(
        self,
        base: AbstractNetwork | Frozen[AbstractNetwork],
        alpha: AbstractAlpha | Frozen[AbstractAlpha],
        temperature: float | Float[Array, ""],
        field: FourierField,
        num_classes: int,
    ):
        """Initialize from parts; `attach` makes them.

        Args:
            base: the classifier.
            alpha: the aleatoric share as a function of standardized features.
            temperature: divides the logits of the base.
            field: carries the dependence between inputs.
            num_classes: number of logits.
        """
        check_positive("num_classes", num_classes)
        if num_classes < 2:
            raise ValueError(f"`num_classes` must be at least 2: one class leaves nothing to know; got {num_classes}.")
        self.base = base
        self.alpha = alpha
        self.temperature = Frozen(check_scalar("temperature", temperature, minimum=1e-6))
        self.field = field
        self.index = GaussianIndex(num_classes * 2 * field.frequencies.content.shape[0])
        self.num_classes = num_classes

    def embed(self, x: PyTree[Array]) -> PitmanYorEmbedding:
        """Run the base, once."""
        logits, features = unwrap(self.base).with_features(x)
        check_shape("logits", logits, (self.num_classes,))
        standardized = self.field.standardize(features)
        alpha = unwrap(self.alpha)(standardized)
        return PitmanYorEmbedding(logits / self.temperature.value, alpha, self.field(standardized), noise_series(alpha))

    def heads(
        self, embedding: PitmanYorEmbedding, zs: Float[Array, "samples index"]
    ) -> Float[Array, "samples classes"]:
        """Return the logits at many indices, by one product with the field of the input."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))
        noise = series_noise(embedding.series, zs.reshape(zs.shape[0], self.num_classes, -1) @ embedding.field)
        return (embedding.logits / embedding.alpha)[None, :] + noise

    def with_parameters(
        self,
        *,
        alpha: float | Float[Array, ""] | AbstractAlpha | None = None,
        temperature: float | Float[Array, ""] | None = None,
        length_scale: float | Float[Array, ""] | None = None,
    ) -> "PitmanYor":
        """Return a copy with other parameters, frozen where they were; those not given stay.

        Args:
            alpha: the aleatoric share, a number or a function of standardized features.
            temperature: divides the logits of the base.
            length_scale: how far knowledge reaches.
        """
        enn = self
        if alpha is not None:
            part = alpha if isinstance(alpha, AbstractAlpha) else ConstantAlpha(alpha)
            part = Frozen(part) if isinstance(enn.alpha, Frozen) else part
            enn = eqx.tree_at(lambda enn: enn.alpha, enn, part)
        if temperature is not None:
            value = check_scalar("temperature", temperature, minimum=1e-6)
            enn = eqx.tree_at(lambda enn: enn.temperature, enn, Frozen(value))
        if length_scale is not None:
            value = check_scalar("length_scale", length_scale, minimum=1e-6)
            value = Frozen(value) if isinstance(enn.field.length_scale, Frozen) else value
            enn = eqx.tree_at(lambda enn: enn.field.length_scale, enn, value)
        return enn


def check_head(enn: Any) -> None:
    """Raise unless `enn` is a Pitman-Yor head, whose predictions are known exactly."""
    if not isinstance(enn, PitmanYor):
        raise ValueError(f"`enn` must be a head that `pitman_yor.attach` returns; got {type(enn).__name__}.")


# Examples that the base is run on at a time: hundreds of photographs in a ResNet are gigabytes.
_BATCH_SIZE = 64


@eqx.filter_jit
def _run_base(network: AbstractNetwork, x: PyTree[Array], length: int) -> tuple[Array, Array]:
    return map_batches(jax.vmap(network.with_features), x, length=length, batch_size=_BATCH_SIZE)


def attach(
    base: Callable[..., Any],
    examples: PyTree[ArrayLike],
    *,
    params: PyTree = None,
    alpha: float | Float[Array, ""] | AbstractAlpha = 0.1,
    temperature: float | Float[Array, ""] = 1.0,
    length_scale: float | Float[Array, ""] = 0.3,
    num_frequencies: int = 10,
    features: Callable[..., Any] | None = None,
    freeze: bool = True,
    key: PRNGKeyArray,
) -> PitmanYor:
    """Turn a classifier into an ENN without changing its predictions of a single label.

    Args:
        base: any JAX callable that maps one example to its logits. It is frozen.
        examples: a few hundred typical inputs, an array or a tree of arrays with a leading batch axis, from which the
            variation of each feature is estimated.
        params: parameters of `base`, if it is called as `base(params, x)`; see `epinet.attach`.
        alpha: the share of uncertainty that is aleatoric, in [0.001, 1]: the probability that a second label of the
            same input is a fresh draw from the prediction and not the first label again. A number, or a function of
            standardized features such as `LogisticAlpha`.
        temperature: divides the logits of the base.
        length_scale: how far knowledge about one input reaches, as the root mean square difference of standardized
            features; two unrelated inputs are about 1.4 apart.
        num_frequencies: pairs of random features of the field; more of them follow the length scale more closely, at a
            proportional cost per index.
        features: maps one example to its features. If not given, `base` is a network of this library, which knows its
            features, or returns `(logits, features)`.
        freeze: whether training leaves `alpha` and the length scale unchanged.
        key: random key of the field.

    Returns:
        An ENN.
    """
    network = as_network(base, features, params)
    length = num_examples("examples", examples)
    examples = check_finite("examples", jax.tree.map(lambda leaf: as_real_array("examples", leaf), examples))
    trace_base(network, jax.tree.map(lambda leaf: leaf[0], examples))
    logits, found = _run_base(network, examples, length)
    for name, value in (("logits", logits), ("features", found)):
        if value.ndim != 2:
            raise ValueError(
                f"`base` must map one example (no batch axis) to a vector of {name}; got shape {value.shape[1:]}."
            )
    check_finite("logits", logits)
    if logits.shape[1] < 2:
        raise ValueError(f"`base` must have at least 2 classes; got {logits.shape[1]}.")
    part = alpha if isinstance(alpha, AbstractAlpha) else ConstantAlpha(alpha)
    field = FourierField(found, num_frequencies, length_scale=length_scale, freeze=freeze, key=key)
    return PitmanYor(Frozen(network), Frozen(part) if freeze else part, temperature, field, logits.shape[1])
