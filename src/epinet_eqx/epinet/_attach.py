"""Add an epinet to any network (Section 4)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import check_positive
from .._init import Initializer, truncated_normal
from .._keys import named_keys
from .._tree import Frozen
from ..indices import GaussianIndex
from ..networks import as_network
from ._epinet import Epinet
from ._learnable import MLPEpinet
from ._prior import PriorNetwork, matched_prior


def _vector_size(name: str, value: Any) -> int:
    """Return the length of a vector that the base network returned."""
    if not hasattr(value, "shape") or len(value.shape) != 1:
        found = value.shape if hasattr(value, "shape") else type(value).__name__
        raise ValueError(f"`base` must map one example (no batch axis) to a vector of {name}; got {found}.")
    return value.shape[0]


def attach(
    base: Callable[[Any], Any],
    *,
    num_classes: int,
    index_dim: int,
    features: Callable[[Any], Any] | None = None,
    example: PyTree[Array] | None = None,
    hidden: tuple[int, ...] = (50,),
    prior_scale: float | Float[Array, ""] = 1.0,
    priors: tuple[PriorNetwork, ...] = (),
    freeze: bool = True,
    initializer: Initializer = truncated_normal,
    key: PRNGKeyArray,
) -> Epinet:
    """Add an epinet to a network, pretrained or not.

    Args:
        base: any JAX callable that maps one example to its logits: an Equinox module, a Flax or Haiku apply function
            closed over its parameters, a plain function.
        num_classes: number of logits (or of regression outputs).
        index_dim: dimension of the epistemic index.
        features: maps one example to the feature vector that the epinet sees. If not given, `base` is a network of
            this library, which knows its features, or returns `(logits, features)`.
        example: one input, from whose shape the size of the features is found and `base` is checked; needed unless
            `base` is a network of this library with a `feature_dim`.
        hidden: sizes of the hidden layers of the learnable epinet.
        prior_scale: scale of the matched prior network.
        priors: further prior networks, such as `mlp_prior` or `conv_prior`.
        freeze: whether the base network keeps its weights.
        initializer: draws the weights of the learnable epinet and of the matched prior.
        key: random key.

    Returns:
        An ENN.
    """
    check_positive("num_classes", num_classes)
    check_positive("index_dim", index_dim)
    network = as_network(base, features)
    if example is not None:
        shapes = eqx.filter_eval_shape(network.with_features, jax.tree.map(jax.numpy.asarray, example))
        found = _vector_size("logits", shapes[0])
        if found != num_classes:
            raise ValueError(f"`num_classes` must be the number of outputs of `base`, {found}; got {num_classes}.")
        feature_dim = _vector_size("features", shapes[1])
    elif hasattr(network, "feature_dim"):
        feature_dim = network.feature_dim  # pyright: ignore[reportAttributeAccessIssue]
    else:
        raise ValueError("`example` must be given for a base that does not say its feature dimension; got None.")
    # Paper: Glorot initialization (Section 4.1); here: by default the truncated normal of the authors' code, because
    # the scale of a matched prior means nothing under Glorot (docs/deviations.md).
    learnable_key, prior_key = named_keys(key, "learnable", "prior")
    learnable = MLPEpinet(
        feature_dim, index_dim, num_classes, hidden=hidden, initializer=initializer, key=learnable_key
    )
    matched = matched_prior(learnable, scale=prior_scale, initializer=initializer, key=prior_key)
    return Epinet(
        base=Frozen(network) if freeze else network,
        learnable=learnable,
        priors=(matched, *priors),
        index=GaussianIndex(index_dim),
    )
