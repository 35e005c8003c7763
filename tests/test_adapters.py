"""Models of other libraries as bases: one line each, one pass, and a saved file that holds every array.

Each library is tried with its real package; a file is loaded by a process that starts from another initialization.
"""

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
from epinet_eqx.networks import Tapped, per_example

pytestmark = pytest.mark.once

# What a user writes, from `key` and `x`, one example with four entries: three outputs.
LINES = {
    "equinox": """
        from epinet_eqx.networks import Tapped
        model = eqx.nn.MLP(4, 3, 8, 2, key=key)
        enn = epi.attach(Tapped(model, lambda model: model.layers[-1]), example=x, index_dim=5, key=key)
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
        """,
    "flax nnx": """
        from flax import nnx

        class Net(nnx.Module):
            def __init__(self, rngs):
                self.first, self.last = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)

            def __call__(self, x):
                x = nnx.relu(self.first(x))
                return self.last(x), x

        graph, params = nnx.split(Net(nnx.Rngs(key)))
        params = nnx.to_pure_dict(params)
        enn = epi.attach(lambda p, x: nnx.call((graph, p))(x)[0], params=params, example=x, index_dim=5, key=key)
        """,
    "haiku": """
        import haiku as hk

        def net(x):
            x = jax.nn.relu(hk.Linear(8)(x))
            return hk.Linear(3)(x), x

        model = hk.without_apply_rng(hk.transform(net))
        enn = epi.attach(model.apply, params=model.init(key, x), example=x, index_dim=5, key=key)
        """,
    "function of a batch": """
        from epinet_eqx.networks import per_example
        weight = jr.normal(key, (3, 4))
        batched = lambda weight, x: (x @ weight.T, jnp.tanh(x))
        enn = epi.attach(per_example(batched), params=weight, example=x, index_dim=5, key=key)
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
WRITER = "epi.save(sys.argv[1] + '.safetensors', enn); np.save(sys.argv[1], enn(x, jnp.ones(5)))"
READER = """
other = np.asarray(enn(x, jnp.ones(5)))
found = np.asarray(epi.load(sys.argv[1] + '.safetensors', enn)(x, jnp.ones(5)))
wanted = np.load(sys.argv[1] + '.npy')
assert np.array_equal(found, wanted), (found, wanted)
assert not np.array_equal(other, wanted)
"""


def run(code: str, *arguments: str) -> None:
    """Run a program in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("library", LINES)
def test_a_model_is_attached_saved_and_loaded_elsewhere(library, tmp_path):
    for package in ("flax", "haiku"):
        if package in library:
            pytest.importorskip(package)
    line, path = textwrap.dedent(LINES[library]), str(tmp_path / "enn")
    run(f"{HEADER}{line}{WRITER}", path, "0")
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


def test_every_line_is_in_the_documentation():
    page = (pathlib.Path(__file__).parent.parent / "docs" / "adapters.md").read_text()
    for library, text in LINES.items():
        (line,) = [line.strip() for line in text.splitlines() if "epi.attach" in line]
        assert line in page, library
