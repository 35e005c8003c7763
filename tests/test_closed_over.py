"""ENNs that a compiled function closes over: XLA on CPU must not meet a product with a constant of equal entries."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enns import CASES, IN_DIM

from epinet_eqx._xla import hide_constant
from epinet_eqx.epinet import MLPEpinet, TermInput
from epinet_eqx.networks import Linear

pytestmark = pytest.mark.once

# What XLA looks through: the result is a broadcast if the operand is.
TRANSPARENT = ("broadcast_in_dim", "reshape", "transpose", "squeeze", "slice", "convert_element_type", "copy", "neg")


def is_equal(value):
    """Return whether all entries of a constant agree."""
    value = np.asarray(value)
    return value.dtype.kind == "f" and value.size > 0 and bool((value == value.flat[0]).all())


def products_with_equal_entries(jaxpr, consts, inputs):
    """Return the operands of products that XLA takes for broadcast numbers."""
    known = dict(zip(jaxpr.constvars, map(is_equal, consts), strict=True)) | dict(
        zip(jaxpr.invars, inputs, strict=True)
    )

    def look(atom):
        if hasattr(atom, "val"):
            return is_equal(atom.val)
        return known.get(atom, False) or getattr(atom.aval, "size", 0) == 1

    found = []
    for equation in jaxpr.eqns:
        operands = [look(atom) for atom in equation.invars]
        if equation.primitive.name == "dot_general":
            shapes = [atom.aval.shape for atom in equation.invars]
            # XLA computes products with vectors by other means.
            found += [
                shape for shape, equal in zip(shapes, operands, strict=True) if equal and min(shape, default=1) > 1
            ]
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            body = getattr(inner, "jaxpr", inner)
            if hasattr(body, "eqns"):
                own = operands[len(operands) - len(body.invars) :] if len(operands) >= len(body.invars) else []
                own = own or [False] * len(body.invars)
                found += products_with_equal_entries(body, getattr(inner, "consts", ()), own)
        through = equation.primitive.name in TRANSPARENT and operands[0]
        known |= dict.fromkeys(equation.outvars, through)
    return found


@pytest.mark.parametrize("case", CASES)
def test_no_product_has_a_constant_of_equal_entries(case, getkey):
    enn = CASES[case](getkey())
    x = jr.normal(getkey(), (2, IN_DIM))
    zs = enn.index.sample_many(3, key=getkey())

    def outputs(x, zs):
        return jax.vmap(enn.heads, in_axes=(0, None))(jax.vmap(enn.embed)(x), zs)

    program = jax.make_jaxpr(outputs)(x, zs)
    assert not products_with_equal_entries(program.jaxpr, program.consts, [False] * len(program.jaxpr.invars))


def largest(enn, features, zs, offsets):
    """Return the largest output at each index, which XLA computes together with the product."""
    return jnp.max(enn.heads(enn.embed(TermInput(features, features)), zs) + offsets, axis=1)


@pytest.mark.parametrize("value", [None, 0.0, 0.01])
def test_an_epinet_with_many_classes_is_the_same_as_a_constant(value, getkey, optimized):
    """Off by many orders of magnitude, or infinite, with jaxlib 0.10.2 if nothing is hidden from XLA."""
    enn = MLPEpinet(64, 30, 1000, key=getkey())
    if value is not None:
        enn = jax.tree.map(lambda leaf: jnp.full_like(leaf, value) if eqx.is_array(leaf) else leaf, enn)
    data = (jr.normal(getkey(), (64,)), jr.normal(getkey(), (32, 30)), jr.normal(getkey(), (32, 1000)))
    expected = eqx.filter_jit(largest)(enn, *data)
    np.testing.assert_allclose(jax.jit(lambda *data: largest(enn, *data))(*data), expected, rtol=1e-5, atol=1e-5)


def test_a_layer_of_zeros_is_the_same_as_a_constant(getkey, optimized):
    layer = Linear(30, 1000, initializer=lambda key, shape: (jnp.zeros(shape), jnp.zeros(shape[:1])), key=getkey())
    x, offsets = jr.normal(getkey(), (32, 30)), jr.normal(getkey(), (32, 1000))
    found = jax.jit(lambda x: jnp.max(jax.vmap(layer)(x) + offsets, axis=1))(x)
    np.testing.assert_array_equal(found, jnp.max(offsets, axis=1))
    np.testing.assert_array_equal(jax.vmap(layer)(x), 0)
    assert jax.vmap(layer)(x[:0]).shape == (0, 1000)


def test_arguments_are_not_hidden(getkey):
    def product(weight, x):
        assert hide_constant(weight, x) is weight
        return x @ weight

    jax.jit(product)(jnp.zeros((3, 4)), jnp.ones((2, 3)))
    # Gradients and maps pass.
    slope = jax.jit(jax.vmap(jax.grad(lambda x: jnp.sum(x @ hide_constant(jnp.zeros((3, 4)), x)))))(jnp.ones((2, 3)))
    np.testing.assert_array_equal(slope, 0)
