"""Models of other libraries as bases: one line each, one pass, and a saved file that holds every array.

Each library is tried with its real package; a file is loaded by a process that starts from another initialization.
"""

import json
import pathlib
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

import epinet_eqx as epi
from epinet_eqx.networks import Tapped, last_token, masked_mean, per_example

pytestmark = pytest.mark.once

# What a user writes, from `key` and `x`, one example with four entries: three outputs.
LINES = {
    "equinox": """
        from epinet_eqx.networks import Tapped
        model = eqx.nn.MLP(4, 3, 8, 2, key=key)
        enn = epi.attach(Tapped(model, lambda model: model.layers[-1]), example=x, index_dim=5, key=key)
        own = lambda x: model(x)
        """,
    "equinox with running statistics": """
        class Net(eqx.Module):
            first: eqx.nn.Linear
            norm: eqx.nn.BatchNorm
            dropout: eqx.nn.Dropout
            last: eqx.nn.Linear

            def __init__(self, key):
                self.first, self.last = eqx.nn.Linear(4, 8, key=key), eqx.nn.Linear(8, 3, key=jr.fold_in(key, 1))
                self.norm, self.dropout = eqx.nn.BatchNorm(8, axis_name="batch", mode="batch"), eqx.nn.Dropout(0.5)

            def __call__(self, x, state, *, key=None):
                x, state = self.norm(self.first(x), state)
                x = self.dropout(jax.nn.relu(x), key=key)
                return (self.last(x), x), state

        model, state = eqx.nn.make_with_state(Net)(key)
        keys = jr.split(key, 16)
        run = lambda x, state, key: model(x, state, key=key)
        _, state = jax.vmap(run, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))(
            jr.normal(key, (16, 4)), state, keys
        )
        model = eqx.nn.inference_mode(model)
        enn = epi.attach(lambda p, x: p[0](x, p[1])[0], params=(model, state), example=x, index_dim=5, key=key)
        own = lambda x: model(x, state)[0]
        """,
    "equinox with running statistics, tapped": """
        from epinet_eqx.networks import Tapped

        class Net(eqx.Module):
            first: eqx.nn.Linear
            norm: eqx.nn.BatchNorm
            last: eqx.nn.Linear

            def __init__(self, key):
                self.first, self.last = eqx.nn.Linear(4, 8, key=key), eqx.nn.Linear(8, 3, key=jr.fold_in(key, 1))
                self.norm = eqx.nn.BatchNorm(8, axis_name="batch", mode="ema")

            def __call__(self, x, state):
                x, state = self.norm(self.first(x), state)
                return self.last(jax.nn.relu(x)), state

        class Fixed(eqx.Module):
            model: Net
            state: eqx.nn.State

            def __call__(self, x):
                return self.model(x, self.state)[0]

        model, state = eqx.nn.make_with_state(Net)(key)
        _, state = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
            jr.normal(key, (16, 4)), state
        )
        fixed = Fixed(eqx.nn.inference_mode(model), state)
        enn = epi.attach(Tapped(fixed, lambda fixed: fixed.model.last), example=x, index_dim=5, key=key)
        own = lambda x: fixed(x)
        """,
    "flax linen": """
        import flax.linen as nn

        class Net(nn.Module):
            @nn.compact
            def __call__(self, x):
                x = nn.relu(nn.Dense(8)(x))
                return nn.Dense(3)(x), x

        model = Net()
        enn = epi.attach(model.apply, params=model.init(key, x), example=x, index_dim=5, key=key)
        own = lambda x, params=model.init(key, x): model.apply(params, x)
        """,
    "flax nnx": """
        from flax import nnx

        class Net(nnx.Module):
            def __init__(self, rngs):
                self.first, self.last = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)

            def __call__(self, x):
                x = nnx.relu(self.first(x))
                return self.last(x), x

        model = Net(nnx.Rngs(key))
        graph, params = nnx.split(model)
        params = nnx.to_pure_dict(params)
        enn = epi.attach(lambda p, x: nnx.call((graph, p))(x)[0], params=params, example=x, index_dim=5, key=key)
        own = lambda x: model(x)
        """,
    "haiku": """
        import haiku as hk

        def net(x):
            x = jax.nn.relu(hk.Linear(8)(x))
            return hk.Linear(3)(x), x

        model = hk.without_apply_rng(hk.transform(net))
        enn = epi.attach(model.apply, params=model.init(key, x), example=x, index_dim=5, key=key)
        own = lambda x, params=model.init(key, x): model.apply(params, x)
        """,
    "equimo": """
        from epinet_eqx.networks import Tapped
        from equimo.models import VisionTransformer
        shape = {"img_size": 8, "in_channels": 3, "patch_size": 4, "dim": 8, "num_heads": [2], "depths": [1]}
        model, x = VisionTransformer(**shape, num_classes=3, key=key), jnp.linspace(-1.0, 1.0, 192).reshape(3, 8, 8)
        model = eqx.nn.inference_mode(model)
        enn = epi.attach(Tapped(model, lambda model: model.head), example=x, index_dim=5, key=key)
        own = lambda x: model(x)
        """,
    "keras": """
        import os
        os.environ["KERAS_BACKEND"] = "jax"
        import keras
        from epinet_eqx.networks import per_example
        keras.utils.set_random_seed(int(sys.argv[2]))
        inputs = keras.Input((4,))
        features = keras.layers.BatchNormalization()(keras.layers.Dense(8, activation="relu")(inputs))
        model = keras.Model(inputs, [keras.layers.Dense(3)(keras.layers.Dropout(0.5)(features)), features])
        parts = model.trainable_variables, model.non_trainable_variables
        params = [[jnp.asarray(variable.value) for variable in part] for part in parts]
        batched = lambda p, x: model.stateless_call(*p, x, training=False)[0]
        enn = epi.attach(per_example(batched), params=params, example=x, index_dim=5, key=key)
        own = lambda x: batched(params, x[None])
        """,
    "torchax": """
        import torch
        import torchax
        import torchax.interop
        from epinet_eqx.networks import per_example

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm, self.last = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)

            def forward(self, x):
                x = torch.relu(self.norm(self.first(x)))
                return self.last(x), x

        torch.manual_seed(int(sys.argv[2]))
        params, batched = torchax.extract_jax(Net().eval())
        enn = epi.attach(per_example(lambda p, x: batched(p, (x,))), params=params, example=x, index_dim=5, key=key)
        own = lambda x: batched(params, (x[None],))
        """,
    "jimm": """
        from flax import nnx
        from jimm.common.sharding import NoSharding
        from jimm.models import VisionTransformer
        from epinet_eqx.networks import per_example
        jax.set_mesh(jax.make_mesh((1,), ("fsdp",), axis_types=(jax.sharding.AxisType.Explicit,)))
        shape = {"img_size": 8, "patch_size": 4, "num_layers": 1, "num_heads": 2, "mlp_dim": 8, "hidden_size": 8}
        rngs = nnx.Rngs(int(sys.argv[2]))
        model, x = VisionTransformer(3, **shape, sharding=NoSharding(), rngs=rngs), jnp.ones((8, 8, 3)) / 2
        model.eval()
        graph, params = nnx.split(model)
        params = nnx.to_pure_dict(params)

        def batched(params, x):
            model = nnx.merge(graph, params)
            features = model.encoder(x)
            return model.classifier(features), features

        enn = epi.attach(per_example(batched), params=params, example=x, index_dim=5, key=key)
        own = lambda x: nnx.merge(graph, params)(x[None])
        """,
    "function of a batch": """
        from epinet_eqx.networks import per_example
        weight = jr.normal(key, (3, 4))
        batched = lambda weight, x: (x @ weight.T, jnp.tanh(x))
        enn = epi.attach(per_example(batched), params=weight, example=x, index_dim=5, key=key)
        own = lambda x: batched(weight, x[None])
        """,
}
HEADER = """
import sys
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import epinet_eqx as epi
key, x = jr.key(int(sys.argv[2])), jnp.linspace(-1.0, 1.0, 4)
"""
WRITER = """
from epinet_eqx.losses import CrossEntropy
xs, y = jr.normal(jr.fold_in(key, 2), (6, *x.shape)), jnp.arange(6) % 3
enn = epi.fit(enn, (xs, y), CrossEntropy(), num_steps=2, batch_size=6, progress=False, key=jr.fold_in(key, 3)).enn
epi.save(sys.argv[1] + '.safetensors', enn); np.save(sys.argv[1], enn(x, jnp.ones(5)))
"""
# The ENN costs what its base costs, called as its own library calls it, and what an epinet on a stored output costs.
COUNTER = """
import json
from epinet_eqx.networks import FunctionNetwork
count = lambda function: jax.jit(function).lower(x).cost_analysis()["flops"]
output, features = jax.tree.map(np.asarray, enn.base.content.with_features(x))
stored = eqx.tree_at(lambda enn: enn.base, enn, FunctionNetwork(lambda x: (output, features)))
counts = {"enn": count(lambda x: enn(x, jnp.ones(5))), "own": count(lambda x: own(x))}
counts["epinet"] = count(lambda x: stored(x, jnp.ones(5)))
print(json.dumps(counts))
"""
READER = """
other = np.asarray(enn(x, jnp.ones(5)))
found = np.asarray(epi.load(sys.argv[1] + '.safetensors', enn)(x, jnp.ones(5)))
wanted = np.load(sys.argv[1] + '.npy')
assert np.array_equal(found, wanted), (found, wanted)
assert not np.array_equal(other, wanted)
"""


def run(code: str, *arguments: str) -> str:
    """Run a program in a process of its own and return what it printed."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("library", LINES)
def test_a_model_is_attached_saved_and_loaded_elsewhere(library, tmp_path):
    # The last four are large, and no part of the test environment.
    for package in ("flax", "haiku", "equimo", "keras", "torchax", "jimm"):
        if package in library:
            pytest.importorskip(package)
    line, path = textwrap.dedent(LINES[library]), str(tmp_path / "enn")
    counts = json.loads(run(f"{HEADER}{line}{COUNTER}{WRITER}", path, "0").splitlines()[-1])
    # A scalar may be counted where parameters are constants and not elsewhere; a second pass would be all of `own`.
    assert counts["own"] > 10 and abs(counts["enn"] - counts["own"] - counts["epinet"]) <= 1, counts
    run(f"{HEADER}{line}{READER}", path, "1")


def test_a_tapped_model_runs_once_and_is_trained(getkey):
    model = eqx.nn.MLP(4, 3, 8, 2, key=getkey())
    network = Tapped(model, lambda model: model.layers[-1])
    x = jr.normal(getkey(), (4,))
    output, features = network.with_features(x)
    assert jnp.array_equal(output, model(x)) and features.shape == (8,)
    assert jnp.allclose(model.layers[-1](features), output, atol=1e-6)
    enn = epi.attach(network, example=x, index_dim=2, freeze=False, key=getkey())
    grads = eqx.filter_grad(lambda enn: jnp.sum(enn(x, jnp.zeros(2))))(enn)
    assert all(jnp.any(layer.weight != 0) for layer in grads.base.model.layers)
    products = str(jax.make_jaxpr(lambda x: network.with_features(x))(x)).count("dot_general")
    assert products == 3


def test_a_tap_must_be_a_layer_that_runs_once(as_user, getkey):
    model = eqx.nn.MLP(4, 3, 8, 2, key=getkey())
    with pytest.raises(ValueError, match="`model` must be a callable Equinox module; got function"):
        Tapped(lambda x: x, lambda model: model)
    with pytest.raises(ValueError, match="`where` must select a layer of `model`, which is callable; got int"):
        Tapped(model, lambda model: model.depth)

    class Twice(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, x):
            return self.layer(self.layer(x))

    twice = Tapped(Twice(eqx.nn.Linear(4, 4, key=getkey())), lambda model: model.layer)
    with pytest.raises(ValueError, match="`where` must select a layer that runs once for each example; it ran 2 times"):
        twice(jnp.zeros(4))


def test_a_function_of_a_batch_takes_one_example(getkey):
    weight, x = jr.normal(getkey(), (3, 4)), jr.normal(getkey(), (4,))
    single = per_example(lambda weight, x: (x @ weight.T, x))
    output, features = single(weight, x)
    assert jnp.allclose(output, weight @ x, atol=1e-6) and jnp.array_equal(features, x)


@pytest.mark.parametrize("mask", [[1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0]])
def test_padding_does_not_change_what_is_pooled(mask, getkey):
    hidden, mask = jr.normal(getkey(), (4, 3)), jnp.array(mask)
    kept = hidden[mask.astype(bool)]
    mean, last = (kept.mean(axis=0), kept[-1]) if len(kept) else (jnp.zeros(3), jnp.zeros(3))
    assert jnp.allclose(masked_mean(hidden, mask), mean, atol=1e-6) and jnp.array_equal(last_token(hidden, mask), last)
    noise = hidden + 1e3 * (1 - mask)[:, None].astype(float)
    assert jnp.allclose(masked_mean(noise, mask), mean, atol=1e-6) and jnp.array_equal(last_token(noise, mask), last)


def test_a_base_of_padded_tokens_is_attached(getkey, as_user):
    params = {"table": jr.normal(getkey(), (9, 6)), "head": jr.normal(getkey(), (2, 6))}

    def base(params, x):
        features = masked_mean(params["table"][x["ids"]], x["mask"])
        return params["head"] @ features, features

    short, padded = jnp.array([3, 1, 2]), jnp.array([3, 1, 2, 8, 8])
    example = {"ids": short, "mask": jnp.ones(3, int)}
    enn = epi.attach(base, params=params, example=example, index_dim=2, key=getkey())
    longer = {"ids": padded, "mask": jnp.array([1, 1, 1, 0, 0])}
    assert jnp.allclose(enn(example, jnp.ones(2)), enn(longer, jnp.ones(2)), atol=1e-5)
    with pytest.raises(ValueError, match=r"`hidden` must have shape \(tokens, width\), without a batch axis; got"):
        last_token(jnp.ones((1, 2, 3)), jnp.ones(2))


def test_every_line_is_in_the_documentation():
    page = (pathlib.Path(__file__).parent.parent / "docs" / "adapters.md").read_text()
    for library, text in LINES.items():
        (line,) = [line.strip() for line in text.splitlines() if "epi.attach" in line]
        assert line in page, library
