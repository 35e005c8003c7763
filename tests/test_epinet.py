"""The epinet of Section 4: identities of Eq. (4), (5) and (6), frozen parts, attach."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import epinet_eqx as epi
from epinet_eqx._tree import count_parameters, sum_of_squares
from epinet_eqx.combinators import Prior
from epinet_eqx.epinet import Epinet, MLPEpinet, TermInput, conv_prior, matched_prior, mlp_prior
from epinet_eqx.indices import GaussianIndex, ParticleIndex
from epinet_eqx.networks import MLP, FunctionNetwork

pytestmark = pytest.mark.once


def make_epinet(key, *, freeze=True, hidden=(7, 6), index_dim=5, prior_scale=0.7):
    base_key, prior_key, key = jr.split(key, 3)
    base = MLP(3, 4, (8,), feature_layers=(0, -1), key=base_key)
    prior = mlp_prior(3, index_dim, 4, scale=0.3, key=prior_key)
    return epi.attach(
        base,
        out_size=4,
        index_dim=index_dim,
        hidden=hidden,
        priors=(prior,),
        prior_scale=prior_scale,
        freeze=freeze,
        key=key,
    )


@pytest.mark.parametrize("hidden", [(), (7,), (7, 6)])
def test_head_is_equation_6(hidden, getkey):
    term = MLPEpinet(11, 5, 4, hidden=hidden, initializer=epi.networks.equinox_uniform, key=getkey())
    features, z = jr.normal(getkey(), (11,)), jr.normal(getkey(), (5,))
    units = jnp.concatenate([features, z])
    for layer in term.layers[:-1]:
        units = jax.nn.relu(layer(units))
    literal = term.layers[-1](units).reshape(5, 4).T @ z
    assert jnp.allclose(term(TermInput(None, features), z), literal, atol=1e-5)


@pytest.mark.parametrize("hidden", [(), (7,), (7, 6)])
def test_heads_is_the_exact_contraction(hidden, getkey):
    term = MLPEpinet(11, 5, 4, hidden=hidden, initializer=epi.networks.equinox_uniform, key=getkey())
    embedding = term.embed(TermInput(None, jr.normal(getkey(), (11,))))
    zs = jr.normal(getkey(), (9, 5))

    def literal(z):
        units = embedding + term.layers[0].weight[:, 11:] @ z
        for layer in term.layers[1:]:
            units = layer(jax.nn.relu(units))
        return z @ units.reshape(5, 4)

    assert jnp.allclose(term.heads(embedding, zs), jax.vmap(literal)(zs), atol=1e-5)


def test_zero_index_gives_the_base_network(getkey):
    enn = make_epinet(getkey())
    x = jr.normal(getkey(), (3,))
    assert jnp.allclose(enn(x, jnp.zeros(5)), enn.base.content(x), atol=1e-6)


def test_ensemble_prior_is_linear_in_the_index(getkey):
    prior = mlp_prior(3, 5, 4, scale=2.0, key=getkey())
    x = jr.normal(getkey(), (3,))
    embedding = prior.embed(TermInput(x, jnp.zeros(1)))
    members = prior.enn.content.enn.members
    outputs = [jax.tree.map(lambda leaf, i=i: leaf[i] if eqx.is_array(leaf) else leaf, members)(x) for i in range(5)]
    z = jr.normal(getkey(), (5,))
    expected = 2.0 * sum(z[i] * outputs[i] for i in range(5))
    assert jnp.allclose(prior.head(embedding, z), expected, atol=1e-5)


def test_conv_prior_and_features_prior(getkey):
    prior = conv_prior((3, 8, 8), 5, 4, key=getkey())
    image = jr.normal(getkey(), (3, 8, 8))
    assert prior.embed(TermInput(image, jnp.zeros(2))).shape == (5, 4)
    on_features = mlp_prior(2, 5, 4, reads="features", key=getkey())
    assert on_features.embed(TermInput(image, jnp.ones(2))).shape == (5, 4)


def test_matched_prior_has_the_architecture_and_other_weights(getkey):
    learnable = MLPEpinet(11, 5, 4, hidden=(7, 6), key=getkey())
    prior = matched_prior(learnable, key=getkey())
    same = jax.tree.map(lambda a, b: a.shape == b.shape, learnable.layers, prior.enn.content.layers)
    assert all(jax.tree.leaves(same))
    assert not jnp.allclose(learnable.layers[0].weight, prior.enn.content.layers[0].weight)


def test_base_is_evaluated_once_for_many_indices(getkey):
    calls = []

    def base(x):
        calls.append(1)
        return x[:2], x

    enn = epi.attach(base, out_size=2, index_dim=3, example=jnp.zeros(4), key=getkey())
    calls.clear()
    enn.heads(enn.embed(jnp.ones(4)), enn.index.sample_many(50, key=getkey()))
    assert len(calls) == 1


def test_features_are_stopped(getkey):
    # Only the epinet's own term is in this loss, so Eq. (4) forbids any gradient to the base network.
    enn = make_epinet(getkey(), freeze=False)
    x, z = jr.normal(getkey(), (3,)), jr.normal(getkey(), (5,))

    def epinet_only(enn):
        return jnp.sum(enn(x, z) - enn(x, jnp.zeros(5)))

    grads = eqx.filter_grad(epinet_only)(enn)
    assert sum_of_squares(grads.base) == 0
    assert sum_of_squares(grads.learnable) > 0


def test_features_can_be_left_unstopped(getkey):
    # The authors' testbed does so: outputs are the same, and the epinet's own term then trains the base network.
    enn = make_epinet(getkey(), freeze=False)
    other = Epinet(enn.base, enn.learnable, enn.priors, enn.index, stop_gradient=False)
    x, z = jr.normal(getkey(), (3,)), jr.normal(getkey(), (5,))
    assert jnp.array_equal(enn(x, z), other(x, z))
    grads = eqx.filter_grad(lambda enn: jnp.sum(enn(x, z) - enn(x, jnp.zeros(5))))(other)
    assert sum_of_squares(grads.base) > 0 and sum_of_squares(grads.priors) == 0


def test_joint_training_reaches_the_base_through_its_output(getkey):
    enn = make_epinet(getkey(), freeze=False)
    grads = eqx.filter_grad(lambda enn: jnp.sum(enn(jnp.ones(3), jnp.ones(5))))(enn)
    assert sum_of_squares(grads.base) > 0


def test_frozen_parts_have_no_gradient_and_are_outside_the_mask(getkey):
    enn = make_epinet(getkey(), freeze=True)
    grads = eqx.filter_grad(lambda enn: jnp.sum(enn(jnp.ones(3), jnp.ones(5)) ** 2))(enn)
    assert sum_of_squares(grads.base) == 0 and sum_of_squares(grads.priors) == 0
    trainable = eqx.filter(enn, epi.trainable_mask(enn))
    assert count_parameters(trainable) == count_parameters(enn.learnable)


def test_freeze_wraps_once(getkey):
    enn = make_epinet(getkey(), freeze=False)
    frozen = epi.freeze(enn, lambda enn: enn.base)
    assert isinstance(frozen.base, epi.Frozen)
    assert isinstance(epi.freeze(frozen, lambda enn: enn.base).base.content, MLP)
    x, z = jnp.ones(3), jnp.ones(5)
    assert jnp.array_equal(frozen(x, z), enn(x, z))


def test_prior_scales_can_be_swept_without_a_new_trace(getkey):
    enn, traces = make_epinet(getkey()), []

    @eqx.filter_jit
    def evaluate(enn):
        traces.append(1)
        return enn(jnp.ones(3), jnp.ones(5))

    outputs = [evaluate(enn.with_prior_scales(scale, 0.0)) for scale in (0.0, 1.0, 2.0)]
    assert len(traces) == 1
    assert jnp.allclose(outputs[2] - outputs[1], outputs[1] - outputs[0], atol=1e-5)


def test_parameter_counts_of_the_paper(getkey):
    assert count_parameters(MLPEpinet(2048, 30, 1000, hidden=(50,), key=getkey())) == 1_633_950
    assert count_parameters(MLPEpinet(64, 20, 10, hidden=(50,), key=getkey())) == 14_450


def test_attach_takes_any_callable(getkey):
    x = jr.normal(getkey(), (3,))
    weight = jr.normal(getkey(), (4, 3))
    module = eqx.nn.Linear(3, 4, key=getkey())
    bases = {
        "equinox module": (module, lambda x: jnp.tanh(x)),
        "function of its parameters": (lambda w, x: w @ x, lambda w, x: x),
        "function with features in its output": (lambda w, x: (w @ x, x**2), None),
    }
    for name, (base, features) in bases.items():
        params = weight if "function" in name else None
        enn = epi.attach(base, params=params, features=features, index_dim=5, example=x, key=getkey())
        output = base(x) if params is None else base(params, x)
        assert jnp.allclose(enn(x, jnp.zeros(5)), output[0] if features is None else output, atol=1e-6)
        assert count_parameters(eqx.filter(enn, epi.trainable_mask(enn))) == count_parameters(enn.learnable)


def test_attach_checks_its_arguments(getkey, as_user):
    key, x = getkey(), jnp.zeros(3)
    mlp = MLP(3, 4, (8,), key=getkey())
    cases = [
        (dict(base=mlp, out_size=0, index_dim=5), "`out_size` must be a positive integer; got 0"),
        (dict(base=mlp, out_size=4, index_dim=0), "`index_dim` must be a positive integer; got 0"),
        (dict(base=lambda x: (x, x), out_size=3, index_dim=5), "`example` must be given"),
        (dict(base=mlp, index_dim=5), "`example` or `out_size` must be given"),
        (dict(base=mlp, index_dim=5, params=x, example=x), "`params` must be left out .* got both for MLP"),
        (
            dict(base=mlp, index_dim=5, example=x, priors=(mlp_prior(2, 5, 4, key=getkey()),)),
            r"`priors\[0\]` must accept the input .*\(2,\); got \(3,\)",
        ),
        (
            dict(base=mlp, index_dim=5, example=x, priors=(mlp_prior(3, 5, 2, key=getkey()),)),
            r"`priors\[0\]` must have as many outputs as `base`, 4; got shape \(2,\)",
        ),
        (dict(base=mlp, index_dim=5, example=x, priors=(mlp,)), r"`priors\[0\]` must be a `Prior`; got MLP"),
        (dict(base=mlp, index_dim=5, example=jnp.zeros(2)), r"`x` must have shape \(3,\); got \(2,\)"),
        (
            dict(base=mlp, out_size=5, index_dim=5, example=x),
            "`out_size` must be the number of outputs .*4; got 5",
        ),
        (dict(base=lambda x: x, out_size=3, index_dim=5, example=x), "`base` must return a pair"),
        (dict(base=lambda x: (x, x[None]), out_size=3, index_dim=5, example=x), "vector of features; got"),
        (dict(base="mlp", out_size=3, index_dim=5, example=x), "`base` must be callable; got str"),
        (dict(base=epi.Frozen(mlp), out_size=4, index_dim=5), "`base` must be the bare network"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            epi.attach(**arguments, key=key)


def hiding_functions(network: MLP) -> dict[str, object]:
    """Return the ways in which a function can read arrays that it is not passed."""
    numbers = [np.asarray(leaf) for leaf in jax.tree.leaves(network) if eqx.is_array(leaf)]

    def with_default(x, weight=network.layers[0].weight):
        return weight @ x, x

    def compiled(x):
        return jax.jit(lambda x: network.with_features(x))(x)

    return {
        "closure": lambda x: network.with_features(x),
        "partial": ft.partial(lambda net, x: net.with_features(x), network),
        "default": with_default,
        "compiled": compiled,
        "loop": lambda x: (jax.lax.map(lambda entry: network(x) * entry, jnp.ones(2))[0], x),
        "numpy": lambda x: (numbers[0] @ x, x),
    }


@pytest.mark.parametrize("way", ["closure", "partial", "default", "compiled", "loop", "numpy"])
def test_a_base_that_hides_its_arrays_is_refused(way, getkey, as_user):
    # Such a base was neither saved nor trained, without a word.
    base = hiding_functions(MLP(3, 4, (8,), key=getkey()))[way]
    with pytest.raises(ValueError, match="`base` must hold the arrays that it reads; got a function that hides"):
        epi.attach(base, index_dim=5, example=jnp.zeros(3), key=getkey())


def test_a_base_and_features_that_share_arrays_are_refused(getkey, as_user):
    # The tree held the base twice, and training moved one copy.
    network = MLP(3, 4, (8,), key=getkey())
    features = eqx.Partial(lambda net, x: net.with_features(x)[1], network)
    with pytest.raises(ValueError, match="`features` must not hold arrays of `base`; got 4 in both"):
        epi.attach(network, features=features, index_dim=5, example=jnp.zeros(3), key=getkey())


def test_constants_that_a_base_writes_down_are_its_own(getkey):
    def base(x):
        return x * jnp.array([1.0, 2.0, 3.0]) + np.arange(3, dtype=np.float32), x

    assert epi.attach(base, index_dim=2, example=jnp.zeros(3), key=getkey())(jnp.ones(3), jnp.zeros(2)).shape == (3,)


def test_parameters_of_a_function_are_saved_and_trained(getkey, tmp_path):
    network = MLP(3, 4, (8,), key=getkey())

    def make(key, params):
        options = dict(params=params, index_dim=5, example=jnp.zeros(3), freeze=False)
        return epi.attach(lambda net, x: net.with_features(x), **options, key=key)

    enn = make(getkey(), network)
    other = make(getkey(), MLP(3, 4, (8,), key=getkey()))
    x, z = jnp.ones(3), jnp.ones(5)
    epi.save(tmp_path / "enn.safetensors", enn)
    loaded = epi.load(tmp_path / "enn.safetensors", other)
    assert jnp.array_equal(loaded(x, z), enn(x, z)) and not jnp.array_equal(other(x, z), enn(x, z))
    grads = eqx.filter_grad(lambda enn: jnp.sum(enn(x, z) ** 2))(enn)
    assert sum_of_squares(grads.base) > 0
    numpy_params = jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, network)
    assert count_parameters(make(getkey(), numpy_params).base) == count_parameters(network)


def test_shapes_are_checked_when_the_enn_runs(getkey, as_user):
    enn = make_epinet(getkey())
    with pytest.raises(ValueError, match=r"`z` must have shape \(5,\); got \(4,\)"):
        enn(jnp.zeros(3), jnp.zeros(4))
    with pytest.raises(ValueError, match=r"`zs` must have shape \(2, 5\); got \(2, 6\)"):
        enn.heads(enn.embed(jnp.zeros(3)), jnp.zeros((2, 6)))
    wide = FunctionNetwork(lambda x: (x, x))
    declared = Epinet(wide, MLPEpinet(3, 5, 3, key=getkey()), (), GaussianIndex(5))
    with pytest.raises(ValueError, match=r"`features` must have shape \(3,\); got \(2,\)"):
        declared(jnp.zeros(2), jnp.zeros(5))
    mismatched = Epinet(wide, MLPEpinet(3, 5, 4, key=getkey()), (), GaussianIndex(5))
    with pytest.raises(ValueError, match="`learnable` must have as many outputs as `base`, 3; got 4"):
        mismatched(jnp.zeros(3), jnp.zeros(5))
    # Without an example the prior is checked here, under the name that the caller of `attach` knows, too.
    prior = mlp_prior(3, 5, 2, key=getkey())
    network = MLP(3, 3, (8,), key=getkey())
    attached = epi.attach(network, out_size=3, index_dim=5, priors=(prior,), key=getkey())
    named = r"`priors\[1\]` \(`priors\[0\]` of `attach`, whose own prior is the first\) must have as many outputs"
    with pytest.raises(ValueError, match=named):
        attached(jnp.zeros(3), jnp.zeros(5))


def test_parts_must_share_the_index(getkey, as_user):
    learnable = MLPEpinet(3, 5, 4, key=getkey())
    with pytest.raises(ValueError, match=r"`learnable` must have the shape of `index`, \(6,\); got \(5,\)"):
        Epinet(FunctionNetwork(lambda x: (x, x)), learnable, (), GaussianIndex(6))
    with pytest.raises(ValueError, match=r"`priors\[0\]` must have the shape of `index`, \(5,\); got \(4,\)"):
        Epinet(FunctionNetwork(lambda x: (x, x)), learnable, (mlp_prior(3, 4, 4, key=getkey()),), GaussianIndex(5))
    with pytest.raises(ValueError, match=r"`learnable` must have the shape of `index`, \(\); got \(5,\)"):
        Epinet(FunctionNetwork(lambda x: (x, x)), learnable, (), ParticleIndex(5))
    with pytest.raises(ValueError, match="`scales` must have one entry per prior, 2; got 1"):
        make_epinet(getkey()).with_prior_scales(1.0)
    with pytest.raises(ValueError, match="`scale` must be finite and at least 0; got -1.0"):
        Prior(learnable, -1.0)
    with pytest.raises(ValueError, match="`enn` must be an ENN .* got function"):
        Prior(lambda x, z: x)
    with pytest.raises(ValueError, match="`reads` must be"):
        mlp_prior(3, 5, 4, reads="pixels", key=getkey())


def test_temperature_divides_and_sweeps_without_a_new_trace(getkey):
    enn, traces = make_epinet(getkey()), []
    x, z = jnp.ones(3), jnp.ones(5)

    @eqx.filter_jit
    def evaluate(enn):
        traces.append(1)
        return enn(x, z)

    for temperature in (0.5, 1.0, 2.0):
        assert jnp.allclose(evaluate(epi.Tempered(enn, temperature)), enn(x, z) / temperature, atol=1e-5)
    assert len(traces) == 1
    with pytest.raises(ValueError, match="`temperature` must be finite and at least 1e-06; got 0.0"):
        epi.Tempered(enn, 0.0)
