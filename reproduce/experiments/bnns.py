r"""BNNs of many kinds (Section 3.2): each as the library has it, and each written down again without it.

The two share only the numbers $\nu$. Where $p_\nu$ is Gaussian the second is drawn from mean and covariance, not by the
map from an index that the ENN uses.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import AbstractENN
from epinet_eqx.bayes import (
    SWAG,
    BayesByBackprop,
    Deterministic,
    DiagonalHypermodel,
    Ensemble,
    LinearHypermodel,
    SWAGState,
    Transport,
    dropout_mlp,
    from_samples,
    last_layer_laplace,
    split_parameters,
)
from epinet_eqx.combinators import Prior, WithPrior
from epinet_eqx.indices import GaussianIndex, ScaledGaussianIndex
from epinet_eqx.networks import MLP

from .generators import numpy_generator
from .perceptron import (
    HIDDEN,
    IN_DIM,
    NUM_CLASSES,
    Atoms,
    Outputs,
    Parameters,
    Sampler,
    draw_parameters,
    flatten,
    forward,
    gaussian_sampler,
    independent_sampler,
    masked_atoms,
    unflatten,
)


class BNN(NamedTuple):
    """One BNN twice.

    Attributes:
        enn: the ENN of the library.
        too_wide: the same with too large a spread, or None if it has no number that says how large.
        sample: samples outputs without the library.
        atoms: all outputs there are, if they are finitely many.
    """

    enn: AbstractENN
    too_wide: AbstractENN | None
    sample: Sampler
    atoms: Atoms | None = None


def _arrays(parameters: Parameters) -> list[Array]:
    """Return parameters for the library."""
    return [jnp.asarray(array, dtype=float) for array in parameters]


def _network(parameters: Parameters) -> MLP:
    """Return the base network of the library with these parameters, stacked if they are."""
    key = jax.eval_shape(jr.key, jax.ShapeDtypeStruct((), jnp.uint32))
    shapes = eqx.filter_eval_shape(MLP, IN_DIM, NUM_CLASSES, (HIDDEN,), key=key)
    return eqx.tree_at(
        lambda network: [array for layer in network.layers for array in (layer.weight, layer.bias)],
        shapes,
        _arrays(parameters),
    )


def _take(parameters: Parameters, number: int) -> Parameters:
    """Return one of stacked parameters."""
    return tuple(array[number] for array in parameters)


def _ensemble(x: np.ndarray, factor: float, *, key: PRNGKeyArray) -> BNN:
    particles = draw_parameters(numpy_generator(key), 1.0, 5)
    atoms = Atoms.equally_likely(forward(particles, x))
    return BNN(Ensemble.of([_network(_take(particles, k)) for k in range(5)]), None, atoms.sample, atoms)


def _ensemble_plus(x: np.ndarray, factor: float, *, key: PRNGKeyArray) -> BNN:
    generator = numpy_generator(key)
    particles, priors = (draw_parameters(generator, 1.0, 5) for _ in range(2))

    def enn(scale: float) -> Ensemble:
        particle = lambda network, prior: WithPrior(Deterministic(network), Prior(Deterministic(prior), scale))  # noqa: E731
        return Ensemble(eqx.filter_vmap(particle)(_network(particles), _network(priors)))

    atoms = Atoms.equally_likely(forward(particles, x) + 1.5 * forward(priors, x))
    return BNN(enn(1.5), enn(1.5 * factor), atoms.sample, atoms)


def _samples(x: np.ndarray, factor: float, *, key: PRNGKeyArray) -> BNN:
    generator = numpy_generator(key)
    chain, other = draw_parameters(generator, 1.0, 40), draw_parameters(generator, 1.0)
    atoms = Atoms.equally_likely(forward(chain, x))
    return BNN(from_samples(_network(other), _network(chain)), None, atoms.sample, atoms)


def _dropout(x: np.ndarray, factor: float, *, key: PRNGKeyArray) -> BNN:
    parameters = draw_parameters(numpy_generator(key), 1.0)

    def arrays(enn: Any) -> list[Array]:
        layers = (enn.trunk.layers[0], enn.network.layers[-1])
        return [array for layer in layers for array in (layer.weight, layer.bias)]

    def enn(rate: float) -> AbstractENN:
        # The copy is for the reuse checker: the weights that the key stands for are replaced.
        made = dropout_mlp(IN_DIM, NUM_CLASSES, (HIDDEN,), rate=rate, key=jr.clone(key))
        return eqx.tree_at(arrays, made, _arrays(parameters))

    atoms = masked_atoms(parameters, x, 0.3)
    return BNN(enn(0.3), enn(0.3 * factor), atoms.sample, atoms)


def _mean_field(x: np.ndarray, factor: float, make: Callable[[MLP, MLP], AbstractENN], *, key: PRNGKeyArray) -> BNN:
    """Return a BNN with independent Gaussian parameters, from a function of their means and standard deviations."""
    generator = numpy_generator(key)
    mean, spread = draw_parameters(generator, 1.0), draw_parameters(generator, 0.5)
    scale = tuple(np.abs(array) + 0.125 for array in spread)
    wide = tuple(factor * array for array in scale)
    enn, too_wide = (make(_network(mean), _network(parameters)) for parameters in (scale, wide))
    return BNN(enn, too_wide, independent_sampler(x, mean, scale))


def _bayes_by_backprop(x: np.ndarray, factor: float, *, key: PRNGKeyArray) -> BNN:
    def make(mean: MLP, scale: MLP) -> AbstractENN:
        enn = BayesByBackprop(mean)
        return eqx.tree_at(lambda enn: enn.rho, enn, jnp.log(jnp.expm1(enn.skeleton.flatten(scale))))

    return _mean_field(x, factor, make, key=key)


def _diagonal_hypermodel(x: np.ndarray, factor: float, *, key: PRNGKeyArray) -> BNN:
    def make(mean: MLP, scale: MLP) -> AbstractENN:
        enn = DiagonalHypermodel(mean)
        return eqx.tree_at(lambda enn: enn.scale, enn, enn.skeleton.flatten(scale))

    return _mean_field(x, factor, make, key=key)


def _linear_hypermodel(x: np.ndarray, factor: float, *, key: PRNGKeyArray) -> BNN:
    generator = numpy_generator(key)
    bias, columns = draw_parameters(generator, 1.0), draw_parameters(generator, 1.0, 4)
    vector, skeleton = split_parameters(_network(bias))
    weight = jnp.stack([skeleton.flatten(_network(_take(columns, d))) for d in range(4)], axis=1)

    def enn(scale: float) -> AbstractENN:
        made = LinearHypermodel(_network(bias), ScaledGaussianIndex(4, scale), key=jr.clone(key))
        return eqx.tree_at(lambda enn: (enn.weight, enn.bias), made, (weight, vector))

    covariance = 0.25 * flatten(columns).T @ flatten(columns)
    return BNN(enn(0.5), enn(0.5 * factor), gaussian_sampler(x, flatten(bias), covariance))


def _laplace(x: np.ndarray, factor: float, *, key: PRNGKeyArray) -> BNN:
    generator = numpy_generator(key)
    mean = draw_parameters(generator, 1.0)
    data = generator.standard_normal((30, IN_DIM))
    enn = last_layer_laplace(_network(mean), jnp.asarray(data, dtype=float), prior_precision=0.5, structure="dense")
    too_wide = eqx.tree_at(lambda enn: enn.root.content.matrix, enn, replace_fn=lambda root: factor * root)
    hidden = jnp.asarray(np.maximum(data @ mean[0].T + mean[1], 0.0), dtype=float)
    split = NUM_CLASSES * HIDDEN

    def log_posterior(last: Float[Array, " parameters"]) -> Float[Array, ""]:
        # Without the terms that are linear in the parameters: labels make no difference to the curvature.
        outputs = hidden @ last[:split].reshape(NUM_CLASSES, HIDDEN).T + last[None, split:]
        return -jnp.sum(jax.nn.logsumexp(outputs, axis=1)) - 0.5 * last @ last / 2.0

    mode = np.concatenate([mean[2].ravel(), mean[3]])
    curvature = -jax.jit(jax.hessian(log_posterior))(jnp.asarray(mode, dtype=float))
    first = flatten(mean).size - mode.size
    covariance = np.pad(np.linalg.inv(np.asarray(curvature, np.float64)), ((first, 0), (first, 0)))
    return BNN(enn, too_wide, gaussian_sampler(x, flatten(mean), covariance))


def _swag(x: np.ndarray, factor: float, *, key: PRNGKeyArray) -> BNN:
    generator = numpy_generator(key)
    steps, rank = 12, 4
    trajectory = draw_parameters(generator, 0.75, steps)
    state = SWAGState.init(_network(_take(trajectory, 0)), rank)
    update = eqx.filter_jit(lambda state, network: state.update(network))
    for step in range(steps):
        state = update(state, _network(_take(trajectory, step)))
    enn = SWAG(state)
    too_wide = eqx.tree_at(lambda enn: (enn.std, enn.factor), enn, replace_fn=lambda root: _scaled(root, factor))
    vectors = flatten(trajectory)
    running = np.cumsum(vectors, axis=0) / np.arange(1, steps + 1)[:, None]
    last = (vectors - running)[-rank:]
    covariance = (np.diag(np.var(vectors, axis=0)) + last.T @ last / (rank - 1)) / 2
    return BNN(enn, too_wide, gaussian_sampler(x, np.mean(vectors, axis=0), covariance))


def _scaled(tree: Any, factor: float) -> Any:
    """Return a tree of arrays times a factor."""
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def laplace_quantile(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the quantiles of the Laplace distribution at the levels of a standard normal variable."""
    return -jnp.sign(z) * (jnp.log(2.0) + jax.scipy.stats.norm.logcdf(-jnp.abs(z)))


def _transport(x: np.ndarray, factor: float, *, key: PRNGKeyArray) -> BNN:
    # Neither Gaussian nor independent: a scale that all parameters share comes first, then the parameters given it, the
    # order of Knothe and Rosenblatt.
    mean = draw_parameters(numpy_generator(key), 1.0)
    vector, skeleton = split_parameters(_network(mean))

    def transport(nu: dict[str, Array], z: Float[Array, " index"]) -> MLP:
        scale = jnp.exp(nu["log_scale"] + 0.5 * z[0])
        return skeleton.unflatten(nu["mean"] + scale * laplace_quantile(z[1:]))

    def enn(scale: float) -> Transport:
        nu = {"mean": vector, "log_scale": jnp.log(jnp.asarray(scale))}
        return Transport(_network(mean), transport, GaussianIndex(skeleton.size + 1), nu=nu)

    def sample(generator: np.random.Generator, count: int) -> Outputs:
        scale = generator.lognormal(np.log(0.3), 0.5, (count, 1))
        return forward(unflatten(generator.laplace(flatten(mean), scale)), x)

    return BNN(enn(0.3), enn(0.3 * factor), sample)


BNNS: dict[str, Callable[..., BNN]] = {
    "ensemble": _ensemble,
    "ensemble+": _ensemble_plus,
    "posterior samples": _samples,
    "dropout": _dropout,
    "Bayes by backprop": _bayes_by_backprop,
    "linear hypermodel": _linear_hypermodel,
    "diagonal hypermodel": _diagonal_hypermodel,
    "last-layer Laplace": _laplace,
    "SWAG": _swag,
    "transport map": _transport,
}
"""What makes each BNN: called with inputs, the factor by which one ENN is too wide, and `key=`."""
