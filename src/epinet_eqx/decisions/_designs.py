"""Functions of a continuous design: samples of the posterior that are differentiable in it, and their maxima."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, PyTree, Shaped

from .._checks import (
    Scalar,
    as_real_array,
    check_finite,
    check_function,
    check_positive,
    check_scalar,
    check_shape,
    is_traced,
    require,
)
from .._draws import Draws, check_draws
from .._enn import AbstractENN, check_enn
from .._keys import named_keys
from ..combinators import Prior
from ..epinet import Epinet
from ._values import only_output

Design = Float[Array, " dims"]


def _opened(part: Any) -> Any:
    """Return a part of an ENN whose epinets and priors stop no gradients at their inputs."""

    def is_stopped(node: Any) -> bool:
        return isinstance(node, Epinet | Prior)

    def open_node(node: Any) -> Any:
        if isinstance(node, Prior):
            return Prior(_opened(node.enn.content), node.scale.content, stop_gradient=False)
        if isinstance(node, Epinet):
            base, learnable, priors = _opened((node.base, node.learnable, node.priors))
            return Epinet(base, learnable, priors, node.index, stop_gradient=False)
        return node

    return jax.tree.map(open_node, part, is_leaf=is_stopped)


def with_input_gradients(enn: AbstractENN) -> AbstractENN:
    """Return the same function with gradients that reach its input; for predictions, not for training.

    Training stops some of them inside an ENN, since an epinet must not train the features that it reads, nor a prior
    the network in front of it. The gradient of such an ENN with respect to `x` lacks these terms.
    """
    return _opened(enn)


class SampledFunction(eqx.Module):
    r"""One way the world may be, as a function of the design: $x \mapsto f(x, z)$ at a fixed index.

    It is differentiable in `x`, and a maximum of it is a choice of Thompson sampling.
    """

    enn: AbstractENN
    z: Shaped[Array, "..."]
    value: Callable[[Float[Array, " outputs"]], Float[Array, ""]] = eqx.field(static=True)

    def __init__(
        self,
        enn: AbstractENN,
        z: Shaped[Array, "..."],
        *,
        value: Callable[[Float[Array, " outputs"]], Float[Array, ""]] = only_output,
    ):
        """Initialize.

        Args:
            enn: the ENN.
            z: the index.
            value: maps an output to the value of a design; by default the only output.
        """
        check_enn("enn", enn)
        check_function("value", value)
        is_key = isinstance(z, Array) and jnp.issubdtype(z.dtype, jax.dtypes.prng_key)
        z = z if is_key else as_real_array("z", z)
        check_shape("z", z, enn.index.shape)
        self.enn = with_input_gradients(enn)
        self.z = check_finite("z", z)
        self.value = value

    def __call__(self, x: Design) -> Float[Array, ""]:
        """Return the value of a design."""
        return self.value(self.enn(x, self.z))


class ImprovementFunction(eqx.Module):
    r"""The expected improvement of a design: $x \mapsto E_z[\max(f(x, z) - \text{best}, 0)]$, over fixed indices."""

    enn: AbstractENN
    draws: Draws
    best: Float[Array, ""]
    value: Callable[[Float[Array, " outputs"]], Float[Array, ""]] = eqx.field(static=True)

    def __init__(
        self,
        enn: AbstractENN,
        draws: Draws,
        best: Scalar,
        *,
        value: Callable[[Float[Array, " outputs"]], Float[Array, ""]] = only_output,
    ):
        """Initialize.

        Args:
            enn: the ENN.
            draws: the indices to average over, the same for all designs.
            best: the best value known so far.
            value: maps an output to the value of a design; by default the only output.
        """
        check_function("value", value)
        self.draws = check_draws(enn, draws)
        self.enn = with_input_gradients(enn)
        self.best = check_scalar("best", best)
        self.value = value

    def __call__(self, x: Design) -> Float[Array, ""]:
        """Return the expected improvement of a design."""
        values = jax.vmap(self.value)(self.enn.heads(self.enn.embed(x), self.draws.indices()))
        return jnp.mean(jnp.maximum(values - self.best, 0.0))


class Maximum(NamedTuple):
    """The best design that was found, and the value of the function there."""

    x: Design
    value: Float[Array, ""]


class _Ascent(NamedTuple):
    """One ascent: where it is, the state of its optimizer, and the best that it has seen."""

    unit: Design
    state: PyTree
    best: Maximum


def _check_bounds(given: Float[ArrayLike, "2 dims"]) -> Float[Array, "2 dims"]:
    """Return the bounds of a box, which must not be empty."""
    bounds = as_real_array("bounds", given).astype(float)
    if bounds.ndim != 2 or bounds.shape[0] != 2 or bounds.shape[1] == 0:
        raise ValueError(
            f"`bounds` must hold two rows, the lowest and the highest of each dimension; got shape {bounds.shape}."
        )
    bounds = check_finite("bounds", bounds)
    wrong: Bool[Array, ""] = ~jnp.all(bounds[0] < bounds[1])
    found = "" if is_traced(wrong) else f"; got {bounds[0].tolist()} and {bounds[1].tolist()}"
    return require(bounds, wrong, f"`bounds` must be lower in the first row than in the second{found}.")


def _check_value(function: Callable[[Design], Float[Array, ""]], x: Design) -> None:
    """Raise unless a function maps a design to one real number; only its shape is computed."""
    found = eqx.filter_eval_shape(lambda function, x: function(x), function, x)
    dtype = jnp.result_type(found) if isinstance(found, jax.ShapeDtypeStruct | float) else None
    if dtype is None or jnp.shape(found) != () or not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"`function` must return one real number as a floating-point array; got {found}.")


@eqx.filter_jit
def _maximize(
    function: Callable[[Design], Float[Array, ""]],
    bounds: Float[Array, "2 dims"],
    sizes: tuple[int, int, int],
    learning_rate: Float[Array, ""],
    key: PRNGKeyArray,
) -> Maximum:
    """Return the best design of all ascents, in one program."""
    num_candidates, num_starts, num_steps = sizes
    optimizer = optax.adam(learning_rate)

    def at(unit: Design) -> Maximum:
        x = bounds[0] + unit * (bounds[1] - bounds[0])
        return Maximum(x, function(x))

    def better(one: Maximum, other: Maximum) -> Maximum:
        return jax.tree.map(lambda own, new: jnp.where(other.value > one.value, new, own), one, other)

    def step(ascent: _Ascent, _: None) -> tuple[_Ascent, None]:
        (_, found), gradient = jax.value_and_grad(lambda unit: (-at(unit).value, at(unit)), has_aux=True)(ascent.unit)
        # Optax multiplies by integer counts.
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimizer.update(gradient, ascent.state)
        unit = jnp.clip(ascent.unit + updates, 0.0, 1.0)  # pyright: ignore[reportOperatorIssue]
        return _Ascent(unit, state, better(ascent.best, found)), None

    def ascend(unit: Design) -> Maximum:
        start = _Ascent(unit, optimizer.init(unit), at(unit))
        last, _ = jax.lax.scan(step, start, length=num_steps)
        return better(last.best, at(last.unit))

    units = jr.uniform(key, (num_candidates, bounds.shape[1]))
    starts = units[jax.lax.top_k(jax.vmap(lambda unit: at(unit).value)(units), num_starts)[1]]
    found = jax.vmap(ascend)(starts)
    return jax.tree.map(lambda leaf: leaf[jnp.argmax(found.value)], found)


def maximize(
    function: Callable[[Design], Float[Array, ""]],
    bounds: Float[ArrayLike, "2 dims"],
    *,
    num_candidates: int = 512,
    num_starts: int = 8,
    num_steps: int = 100,
    learning_rate: Scalar = 0.02,
    key: PRNGKeyArray,
) -> Maximum:
    """Maximize a function over a box by gradient ascent from the best of many random designs.

    Adam in units of the box, clipped to it. One program for all ascents, found again for another function of the same
    kind: pass a module such as `SampledFunction`, not a new closure in each round. Map it over several functions and
    keys by `eqx.filter_vmap`.

    Args:
        function: maps a design to a value: `SampledFunction(enn, z)`, `ImprovementFunction(enn, draws, best)` or your
            own.
        bounds: the lowest value of each dimension in the first row, the highest in the second.
        num_candidates: random designs to begin with.
        num_starts: how many of the best of them are improved.
        num_steps: steps of each ascent.
        learning_rate: of Adam, in units of the box.
        key: random key of the designs to begin with.

    Returns:
        The best design seen, at least as good as the best random one.
    """
    check_function("function", function)
    for name, size in (("num_candidates", num_candidates), ("num_starts", num_starts), ("num_steps", num_steps)):
        check_positive(name, size)
    if num_starts > num_candidates:
        raise ValueError(f"`num_starts` must be at most `num_candidates`, {num_candidates}; got {num_starts}.")
    box = _check_bounds(bounds)
    rate = check_scalar("learning_rate", learning_rate, minimum=0.0)
    _check_value(function, box[0])
    (candidate_key,) = named_keys(key, "candidates")
    found = _maximize(function, box, (num_candidates, num_starts, num_steps), rate, candidate_key)
    return check_finite("function(x)", found)
