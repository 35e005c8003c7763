r"""The second part of Theorem 3: the ENN $\theta^\top x + \theta'' z$, which no BNN on the base $\theta^\top x$ is.

At $x = 0$ every function of the base network is zero, so every BNN says zero there with certainty, whatever its
distribution; the ENN is normal with standard deviation $\theta''$. Away from zero: a sampled function of the ENN is not
linear, so even the linear function nearest to it at $n$ inputs misses it, by $\theta''^2 \, 1^\top (I - H) 1$ in
expected squared distance, with $H$ the projection onto the inputs.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, PRNGKeyArray

from epinet_eqx import AbstractENN, Draws, named_keys, predict
from epinet_eqx.bayes import BayesByBackprop, Ensemble, LinearHypermodel, Transport
from epinet_eqx.indices import GaussianIndex

from ..artifacts.thm3 import CounterExample
from ..record import Row
from .generators import numpy_generator
from .linear_gaussian import LinearNetwork

# So many inputs, the first ones, lie on the line that the figure shows.
_NUM_SHOWN = 3


class ShiftedLinear(AbstractENN):
    r"""The ENN $\theta^\top x + \theta'' z$ of Appendix C, with a standard normal index."""

    base: LinearNetwork
    shift: Float[Array, ""]
    index: GaussianIndex

    def embed(self, x: Float[Array, " in"]) -> Float[Array, " classes"]:
        """Return the output of the base network."""
        return self.base(x)

    def heads(
        self, embedding: Float[Array, " classes"], zs: Float[Array, "samples index"]
    ) -> Float[Array, "samples classes"]:
        """Return the outputs at many indices."""
        return embedding[None, :] + self.shift * zs


def make_enn(weight: np.ndarray, shift: float) -> ShiftedLinear:
    """Return the ENN of the counter-example."""
    base = LinearNetwork(jnp.asarray(weight, dtype=float))
    return ShiftedLinear(base=base, shift=jnp.asarray(shift), index=GaussianIndex(1))


def make_bnns(weight: np.ndarray, generator: np.random.Generator, *, key: PRNGKeyArray) -> dict[str, AbstractENN]:
    """Return BNNs of several kinds on the linear base network."""
    base = LinearNetwork(jnp.asarray(weight, dtype=float))
    particles = LinearNetwork(jnp.asarray(weight + generator.standard_normal((10, len(weight))), dtype=float))

    def cubed(nu: Float[Array, " in"], z: Float[Array, " index"]) -> LinearNetwork:
        return LinearNetwork(nu + z**3)

    return {
        "Bayes by backprop": BayesByBackprop(base, sigma_init=0.5),
        "ensemble": Ensemble(particles),
        "linear hypermodel": LinearHypermodel(base, GaussianIndex(2), key=key),
        "transport map": Transport(base, cubed, GaussianIndex(len(weight)), nu=base.weight),
    }


def residuals(
    x: Float64[np.ndarray, "inputs in"], functions: Float64[np.ndarray, "samples inputs"]
) -> Float64[np.ndarray, " samples"]:
    """Return the mean squared distance of each function from the linear function nearest to it at the inputs."""
    basis, _ = np.linalg.qr(x)
    return np.mean((functions - functions @ basis @ basis.T) ** 2, axis=1)


def _measured(kind: str, model: str, values: Float64[np.ndarray, " samples"], exact: float) -> Row:
    """Return the mean of sampled values, with its standard error, beside the exact one."""
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return {"kind": kind, "model": model, "exact": exact} | {
        "sampled": np.mean(values).item(),
        "standard_error": error.item(),
        "num_samples": len(values),
    }


def _lines(model: str, x: np.ndarray, functions: np.ndarray) -> list[Row]:
    """Return sampled functions along the first entry of the input, at the inputs that the figure shows."""
    shown = sorted(range(_NUM_SHOWN), key=lambda t: x[t, 0])
    return [
        {"kind": "line", "model": model, "line": line, "x": x[t, 0].item(), "y": functions[line, t].item()}
        for line in range(len(functions))
        for t in shown
    ]


def counterexample(config: CounterExample, *, key: PRNGKeyArray) -> list[Row]:
    """Return what the ENN says, and what BNNs can say."""
    data_key, init_key, index_key = named_keys(key, "data", "init", "index")
    generator = numpy_generator(data_key)
    weight = generator.standard_normal(config.in_dim)
    weight[0] = 0.5
    # Zero first, then one input to its left and one to its right, for the figure.
    inputs = generator.standard_normal((config.num_inputs, config.in_dim)).astype(np.float32)
    inputs[:_NUM_SHOWN] = 0.0
    inputs[1:_NUM_SHOWN, 0] = (-2.0, 2.0)
    x = inputs.astype(np.float64)

    def sampled(model: AbstractENN, *, key: PRNGKeyArray) -> Float64[np.ndarray, "samples inputs"]:
        samples = predict.sample(model, inputs, Draws.sample(model.index, config.num_samples, key=key, chunk_size=1000))
        return np.asarray(samples.outputs[:, :, 0], np.float64)

    models = {"ENN": make_enn(weight, config.shift), **make_bnns(weight, generator, key=init_key)}
    basis, _ = np.linalg.qr(x)
    ones = np.ones(config.num_inputs)
    rows: list[Row] = []
    for (name, model), model_key in zip(models.items(), named_keys(index_key, *models), strict=True):
        functions = sampled(model, key=model_key)
        variance = config.shift**2 if name == "ENN" else 0.0
        missed = variance * np.mean((ones - basis @ (basis.T @ ones)) ** 2)
        rows.append(_measured("variance at zero", name, functions[:, 0] ** 2, variance))
        rows.append(_measured("residual of linear fits", name, residuals(x, functions), missed.item()))
        rows.append({"kind": "largest at zero", "model": name, "sampled": np.max(np.abs(functions[:, 0])).item()})
        if name in ("ENN", "Bayes by backprop"):
            rows += _lines(name, x, functions[: config.num_lines])
    unshifted = make_enn(weight, 0.0)
    (plain_key,) = named_keys(index_key, "without shift")
    base = np.asarray(jax.vmap(unshifted.base)(jnp.asarray(inputs))[:, 0], np.float64)
    difference = np.max(np.abs(sampled(unshifted, key=plain_key) - base)).item()
    return [*rows, {"kind": "difference from the base without shift", "model": "ENN", "sampled": difference}]
