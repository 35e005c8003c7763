"""Add an epinet to any network (Section 4)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike, PRNGKeyArray, PyTree

from .._checks import Scalar, check_key, check_positive
from .._init import Initializer, truncated_normal
from .._keys import named_keys
from .._tree import Frozen
from ..combinators import Prior
from ..indices import GaussianIndex
from ..networks import as_network, trace_base
from ._epinet import Epinet
from ._terms import MLPEpinet, TermInput, matched_prior


def _vector_size(name: str, value: Any) -> int:
    """Return the length of a vector that the base network returned."""
    if not isinstance(value, jax.ShapeDtypeStruct) or len(value.shape) != 1:
        found = value.shape if isinstance(value, jax.ShapeDtypeStruct) else type(value).__name__
        advice = " For labels at several positions return `jnp.ravel(outputs)`; see `likelihoods.PerPosition`."
        raise ValueError(
            f"`base` must map one example (no batch axis) to a vector of {name}; got {found}."
            + (advice if name == "outputs" else "")
        )
    return value.shape[0]


def _check_prior(name: str, prior: Prior, x: PyTree, features: Any, index: GaussianIndex, outputs: int) -> None:
    """Raise unless a prior accepts the example and adds to each output of the base."""
    z = jax.ShapeDtypeStruct(index.shape, jnp.result_type(float))
    try:
        found = eqx.filter_eval_shape(prior, TermInput(x, features), z)
    except Exception as error:
        raise ValueError(f"`{name}` must accept the input and features of `example`; got: {error}") from error
    if found.shape != (outputs,):
        raise ValueError(f"`{name}` must have as many outputs as `base`, {outputs}; got shape {found.shape}.")


def attach(
    base: Callable[..., Any],
    *,
    index_dim: int = 30,
    out_size: int | None = None,
    params: PyTree = None,
    features: Callable[..., Any] | None = None,
    example: PyTree[ArrayLike] | None = None,
    hidden: tuple[int, ...] = (50,),
    prior_scale: Scalar = 1.0,
    priors: tuple[Prior, ...] = (),
    freeze: bool = True,
    initializer: Initializer = truncated_normal,
    key: PRNGKeyArray,
) -> Epinet:
    """Add an epinet to a network, pretrained or not.

    Any network of this library is a base, and so is any module that returns `(output, features)`. Pass a function of
    another library together with its parameters:

        attach(lambda params, x: model.apply(params, x), params=params, example=x[0], index_dim=10, key=key)

    Arrays hidden in a closure raise an error: they would be neither saved nor trained.

    Args:
        base: maps one example to the pair `(output, features)`, or to the output alone if `features` is given.
        index_dim: dimension of the epistemic index. The default, with those of `hidden` and `prior_scale`, is the
            paper's epinet on a frozen ImageNet network; it has 20 on CIFAR and 8 on the testbed.
        out_size: number of outputs: classes, or numbers of a regression; inferred from `example`.
        params: parameters of `base`, any tree of arrays; `base` is then called as `base(params, x)`.
        features: maps one example to the feature vector that the epinet reads, with the same arguments as `base`. Not
            needed if `base` is a network of this library or returns `(output, features)`.
        example: one input. Its shape gives all sizes, and every part is checked on it; not needed if `base` is a
            network of this library that knows its `feature_dim`.
        hidden: sizes of the hidden layers of the learnable epinet.
        prior_scale: scale of the matched prior network. The paper's 1 suits features of about unit mean square, such
            as those of ResNet-50; larger features need a smaller scale, chosen on held-out data with the temperature.
        priors: further priors, such as `mlp_prior` or `conv_prior`.
        freeze: whether training leaves the base network unchanged.
        initializer: draws the weights of the learnable epinet and of the matched prior.
        key: random key.

    Returns:
        An ENN.
    """
    if out_size is not None:
        check_positive("out_size", out_size)
    check_positive("index_dim", index_dim)
    check_key("key", key)
    if not isinstance(priors, tuple | list):
        raise ValueError(f"`priors` must be a tuple of priors; got {type(priors).__name__}.")
    for number, prior in enumerate(priors):
        if not isinstance(prior, Prior):
            raise ValueError(f"`priors[{number}]` must be a `Prior`; got {type(prior).__name__}.")
        if prior.index.shape != (index_dim,):
            raise ValueError(
                f"`priors[{number}]` must have an index of dimension `index_dim`, {index_dim}; "
                f"got shape {prior.index.shape}."
            )
    network = as_network(base, features, params)
    index = GaussianIndex(index_dim)
    if example is not None:
        output, seen = trace_base(network, example)
        found = _vector_size("outputs", output)
        if out_size not in (None, found):
            raise ValueError(f"`out_size` must be the number of outputs of `base`, {found}; got {out_size}.")
        out_size, feature_dim = found, _vector_size("features", seen)
        x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), jax.tree.map(jnp.asarray, example))
        for number, prior in enumerate(priors):
            _check_prior(f"priors[{number}]", prior, x, seen, index, out_size)
    elif out_size is None:
        raise ValueError("`example` or `out_size` must be given, to know the number of outputs; got neither.")
    elif network.feature_dim is None:
        raise ValueError("`example` must be given for a base that does not know its feature dimension; got None.")
    else:
        feature_dim = network.feature_dim
    # Paper: Glorot initialization (Section 4.1); here: by default the truncated normal of the authors' code, because
    # the scale of a matched prior means nothing under Glorot (docs/deviations.md).
    learnable_key, prior_key = named_keys(key, "learnable", "prior")
    learnable = MLPEpinet(feature_dim, index_dim, out_size, hidden=hidden, initializer=initializer, key=learnable_key)
    matched = matched_prior(learnable, scale=prior_scale, initializer=initializer, key=prior_key)
    return Epinet(
        base=Frozen(network) if freeze else network, learnable=learnable, priors=(matched, *priors), index=index
    )
