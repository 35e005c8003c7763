"""Figure 4: the parts of a real epinet, their shapes and sizes, and checks of what the diagram says."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import Draws, attach, named_keys, predict, trainable_mask
from epinet_eqx._tree import count_parameters, unwrap
from epinet_eqx.combinators import Prior
from epinet_eqx.epinet import Epinet, MLPEpinet, NetworkEnsemble, Reads, TermInput, mlp_prior
from epinet_eqx.networks import MLP, FunctionNetwork, Linear

from ..artifacts.fig04 import EpinetDiagram
from ..record import Row


def make_epinet(config: EpinetDiagram, *, key: PRNGKeyArray) -> Epinet:
    """Return an MLP with an epinet attached to it, with a matched prior and an ensemble prior."""
    base_key, prior_key, epinet_key = named_keys(key, "base", "prior", "epinet")
    base = MLP(config.in_dim, config.num_classes, config.hidden, feature_layers=(0, -1), key=base_key)
    ensemble = mlp_prior(
        config.in_dim,
        config.index_dim,
        config.num_classes,
        hidden=config.prior_hidden,
        scale=config.prior_scale,
        key=prior_key,
    )
    return attach(
        base,
        out_size=config.num_classes,
        index_dim=config.index_dim,
        hidden=config.epinet_hidden,
        prior_scale=config.prior_scale,
        priors=(ensemble,),
        freeze=False,
        key=epinet_key,
    )


def _sizes(layers: tuple[Linear, ...]) -> str:
    """Return the widths of a chain of layers; a leading axis of stacked members is not a width."""
    widths = [layers[0].weight.shape[-1], *(layer.bias.shape[-1] for layer in layers)]
    return " → ".join(str(width) for width in widths)


def _part(
    part: str, network: Any, sizes: str, out_shape: tuple[int, ...], num_trainable: int, **more: Any
) -> dict[str, Any]:
    """Return the row of one part."""
    shape = " by ".join(str(size) for size in out_shape)
    return {
        "part": part,
        "sizes": sizes,
        "out_shape": shape,
        "parameters": count_parameters(network),
        "trainable": num_trainable,
    } | more


def parts(enn: Epinet, x: Float[Array, " in"]) -> list[dict[str, Any]]:
    """Return one row per part of an epinet, read off the model."""
    base, learnable = enn.base, enn.learnable
    assert isinstance(base, MLP)
    assert isinstance(learnable, MLPEpinet)
    output, features = eqx.filter_eval_shape(base.with_features, x)
    shown = eqx.filter(enn, trainable_mask(enn))
    head = (learnable.index_dim, learnable.num_classes)
    rows = [
        _part("input", (), "", x.shape, 0),
        _part("index", (), "", enn.index.shape, 0),
        _part("base", base, _sizes(base.layers), output.shape, count_parameters(shown.base)),
        _part("features", (), "", features.shape, 0),
        _part("learnable", learnable, _sizes(learnable.layers), head, count_parameters(shown.learnable)),
    ]
    for prior, trainable in zip(enn.priors, shown.priors, strict=True):
        rows.append(_prior_part(prior, num_trainable=count_parameters(trainable)))
    totals = {name: sum(row[name] for row in rows) for name in ("parameters", "trainable")}
    return [*rows, _part("output", (), "", output.shape, 0) | totals]


def _prior_part(prior: Prior, *, num_trainable: int) -> dict[str, Any]:
    """Return the row of a prior network."""
    network, scale = prior.enn.content, prior.scale.content.item()
    if isinstance(network, Reads):
        assert isinstance(network.enn, NetworkEnsemble) and isinstance(network.enn.members, MLP)
        members, index_dim = network.enn.members, network.index.size
        out_shape = (index_dim, members.layers[-1].bias.shape[-1])
        return _part(
            "prior",
            network,
            _sizes(members.layers),
            out_shape,
            num_trainable,
            scale=scale,
            members=index_dim,
            reads=network.part,
        )
    assert isinstance(network, MLPEpinet)
    out_shape = (network.index_dim, network.num_classes)
    return _part("prior", network, _sizes(network.layers), out_shape, num_trainable, scale=scale, reads="features")


def _largest(tree: Any) -> Float[Array, ""]:
    """Return the largest absolute value in a tree."""
    return jnp.max(jnp.array([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(tree)]))


def _sum_error(enn: Epinet, x: Array, z: Array) -> Float[Array, ""]:
    """Return how far the output is from the sum of its parts, each called on its own."""
    output, features = unwrap(enn.base).with_features(x)
    terms = [term(TermInput(x, features), z) for term in (enn.learnable, *enn.priors)]
    return _largest(enn(x, z) - output - sum(terms))


def _gradients(enn: Epinet, x: Array, z: Array) -> Epinet:
    """Return the gradient of what the epinet adds to the output."""
    params, rest = eqx.partition(enn, eqx.is_inexact_array)

    def contribution(params: Epinet) -> Float[Array, ""]:
        model = eqx.combine(params, rest)
        embedding = model.embed(x)
        # The base output itself is held fixed, so that all that moves is what the epinet adds to it.
        embedding = embedding._replace(base=jax.lax.stop_gradient(embedding.base))
        return jnp.sum(jnp.square(model.head(embedding, z)))

    return jax.grad(contribution)(params)


@eqx.filter_jit
def _checks(enn: Epinet, x: Array, z: Array) -> dict[str, Float[Array, ""]]:
    """Return numbers that the text says are zero, and one that must not be: that of the learnable part."""
    gradients = _gradients(enn, x, z)
    return {
        "output minus the sum of the parts": _sum_error(enn, x, z),
        "gradient of the epinet to the base": _largest(gradients.base),
        "gradient of the epinet to its priors": _largest(gradients.priors),
        "gradient of the epinet to its learnable part": _largest(gradients.learnable),
    }


def _base_passes(enn: Epinet, num_samples: int, x: Array, *, key: PRNGKeyArray) -> int:
    """Return how often the base network runs while many samples are drawn at one input."""
    base = unwrap(enn.base)
    passes = []

    def counted(x: Array) -> tuple[Array, Array]:
        output, features = base.with_features(x)
        jax.debug.callback(lambda _: passes.append(1), output)
        return output, features

    enn = eqx.tree_at(lambda enn: enn.base, enn, FunctionNetwork(counted))
    samples = predict.sample(enn, x[None], Draws.sample(enn.index, num_samples, key=key))
    jax.block_until_ready(samples.outputs)
    jax.effects_barrier()
    return len(passes)


def structure(config: EpinetDiagram, *, key: PRNGKeyArray) -> list[Row]:
    """Return the parts of the model, and the checks."""
    model_key, x_key, z_key, count_key = named_keys(key, "model", "input", "index", "count")
    enn = eqx.filter_jit(make_epinet)(config, key=model_key)
    x = jr.normal(x_key, (config.in_dim,))
    z = enn.index.sample(key=z_key)
    checks = {name: value.item() for name, value in _checks(enn, x, z).items()}
    passes = {"passes of the base network": float(_base_passes(enn, config.num_samples, x, key=count_key))}
    rows = [{"kind": "part", **row} for row in parts(enn, x)]
    return [*rows, *({"kind": "check", "part": name, "value": value} for name, value in {**checks, **passes}.items())]
