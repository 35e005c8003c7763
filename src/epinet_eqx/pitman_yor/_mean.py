"""The mean prediction of an ENN as a classifier, for the head to sit on."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from .._draws import Draws, check_draws
from .._enn import AbstractENN
from .._tree import unwrap
from ..networks import AbstractNetwork
from ._head import PitmanYor
from ._parts import AbstractAlpha, ConstantAlpha, FourierField


class MeanPrediction(AbstractNetwork):
    r"""Logits $\ln \frac{1}{M} \sum_m \mathrm{softmax}(f_\theta(x, z_m))$: an ENN's average prediction, and features.

    `attach(MeanPrediction(enn, draws), x, ...)` is an ENN with exactly the marginals of `enn` over these indices. What
    it says of several labels jointly is the head's: `enn` may be an ensemble or an epinet, whose own joint prediction
    is then not used.
    """

    enn: AbstractENN
    zs: Shaped[Array, "samples ..."]
    features: Callable[[AbstractENN, PyTree[Array]], Float[Array, " features"]] | None

    def __init__(
        self,
        enn: AbstractENN,
        draws: Draws,
        features: Callable[[AbstractENN, PyTree[Array]], Float[Array, " features"]] | None = None,
    ):
        """Initialize.

        Args:
            enn: a classifier.
            draws: the indices to average over, at each input.
            features: maps `enn` and one example to features for the field; by default those of the base of an epinet.
        """
        if features is None and not hasattr(enn, "base"):
            raise ValueError(
                "`features` must be given for an ENN without a base network, such as `lambda enn, x: x`; "
                f"got None for {type(enn).__name__}."
            )
        self.enn = enn
        self.zs = check_draws(enn, draws).indices()
        self.features = features

    @property
    def feature_dim(self) -> None:
        """Unknown: None."""
        return None

    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the logarithms of the average probabilities, and the features."""
        log_p = jax.nn.log_softmax(self.enn.heads(self.enn.embed(x), self.zs))
        mean = jax.nn.logsumexp(log_p, axis=0) - jnp.log(float(log_p.shape[0]))
        if self.features is not None:
            return mean, self.features(self.enn, x)
        base: AbstractNetwork = unwrap(self.enn.base)  # pyright: ignore[reportAttributeAccessIssue]
        return mean, base.with_features(x)[1]


def _input(enn: AbstractENN, x: Float[Array, " features"]) -> Float[Array, " features"]:
    """Return the input itself."""
    return x


class OnMean(eqx.Module):
    """Builds the head on the mean prediction of any given ENN, always from the same parts.

    For loops in which the ENN changes: a `bandits.ENNAgent` with this `view`, or one program for many trained ENNs.
    """

    field: FourierField
    alpha: AbstractAlpha
    draws: Draws | None
    features: Callable[[AbstractENN, PyTree[Array]], Float[Array, " features"]]
    num_classes: int = eqx.field(static=True)

    def __init__(
        self,
        field: FourierField,
        *,
        alpha: float | Float[Array, ""] | AbstractAlpha = 0.1,
        num_classes: int = 2,
        draws: Draws | None = None,
        features: Callable[[AbstractENN, PyTree[Array]], Float[Array, " features"]] = _input,
    ):
        """Initialize from parts.

        Args:
            field: carries the dependence between inputs.
            alpha: the aleatoric share, a number or a function of standardized features.
            num_classes: number of outputs of the ENN.
            draws: the indices of the mean; by default all of a finite support.
            features: maps an ENN and one example to features for the field; by default the input itself.
        """
        self.field = field
        self.alpha = alpha if isinstance(alpha, AbstractAlpha) else ConstantAlpha(alpha)
        self.draws = draws
        self.features = features
        self.num_classes = num_classes

    def __call__(self, enn: AbstractENN) -> PitmanYor:
        """Return the head on an ENN."""
        draws = Draws.all(enn.index) if self.draws is None else self.draws
        mean = MeanPrediction(enn, draws, self.features)
        return PitmanYor(mean, self.alpha, 1.0, self.field, self.num_classes)
