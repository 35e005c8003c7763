"""An ENN as a model of BoTorch, whose acquisition functions then apply."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from .._checks import check_positive, require_package
from .._draws import Draws, check_draws, outputs_at
from .._enn import AbstractENN
from ._designs import with_input_gradients


def _outputs(
    enn: AbstractENN, x: Float[Array, "designs dims"], zs: Shaped[Array, "samples ..."]
) -> Float[Array, "samples designs outputs"]:
    """Return the outputs at designs and indices."""
    return outputs_at(enn, jax.vmap(enn.embed)(x), zs)


_compiled_outputs = eqx.filter_jit(_outputs)


@eqx.filter_jit
def _pull_back(
    enn: AbstractENN,
    x: Float[Array, "designs dims"],
    zs: Shaped[Array, "samples ..."],
    cotangent: Float[Array, "samples designs outputs"],
) -> Float[Array, "designs dims"]:
    """Return the gradient of the designs for a gradient of the outputs."""
    return jax.vjp(lambda x: _outputs(enn, x, zs), x)[1](cotangent)[0]


class _Bridge:
    """The outputs of an ENN and their gradients, from NumPy to NumPy."""

    def __init__(self, enn: AbstractENN, draws: Draws):
        self.enn = with_input_gradients(enn)
        self.zs = draws.indices()

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """Return the outputs, by samples, designs and outputs."""
        return np.asarray(_compiled_outputs(self.enn, _padded(x), self.zs))[:, : len(x)]

    def gradient(self, x: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
        """Return the gradient of the designs."""
        padded = _padded(x)
        zeros = np.zeros((cotangent.shape[0], padded.shape[0] - len(x), cotangent.shape[2]), cotangent.dtype)
        whole = jnp.asarray(np.concatenate([cotangent, zeros], axis=1), dtype=float)
        return np.asarray(_pull_back(self.enn, padded, self.zs, whole))[: len(x)]


def _padded(x: np.ndarray) -> Float[Array, "designs dims"]:
    """Pad designs to a power of two: an optimizer requests many sizes, and each would compile a program."""
    rows = np.minimum(np.arange(1 << max(len(x) - 1, 0).bit_length()), len(x) - 1)
    return jnp.asarray(x[rows], dtype=float)


@functools.cache
def _model_class() -> Any:
    """Return the class of the model: BoTorch is imported when it is first used."""
    torch = require_package("torch", extra="botorch")
    ensemble = require_package("botorch.models.ensemble", extra="botorch")

    class Outputs(torch.autograd.Function):
        """Outputs of an ENN, which Torch differentiates by the gradient of JAX."""

        @staticmethod
        def forward(ctx: Any, x: Any, bridge: _Bridge) -> Any:
            ctx.bridge = bridge
            ctx.save_for_backward(x)
            return torch.tensor(bridge.outputs(x.detach().cpu().numpy())).to(x)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, cotangent: Any) -> Any:
            (x,) = ctx.saved_tensors
            found = ctx.bridge.gradient(x.detach().cpu().numpy(), cotangent.detach().cpu().numpy())
            return torch.tensor(found).to(x), None

    class ENNModel(ensemble.EnsembleModel):
        """An ensemble whose members are the functions of an ENN at fixed indices."""

        def __init__(self, bridge: _Bridge, num_outputs: int):
            super().__init__()
            self._bridge = bridge
            self._num_outputs = num_outputs

        def forward(self, X: Any) -> Any:
            found = Outputs.apply(X.reshape(-1, X.shape[-1]), self._bridge)
            if found.shape[-1] != self._num_outputs:
                raise ValueError(f"`num_outputs` must be that of `enn`, {found.shape[-1]}; got {self._num_outputs}.")
            return found.reshape(-1, *X.shape[:-1], self._num_outputs).movedim(0, -3)

    return ENNModel


def botorch_model(enn: AbstractENN, draws: Draws, *, num_outputs: int = 1) -> Any:
    """Return a model of BoTorch whose posterior is the joint prediction of an ENN at fixed indices.

    Its `posterior(X)` is BoTorch's `EnsemblePosterior`: sample `m` of every design belongs to index `m`, so the samples
    are coherent over all designs, and differentiable in them. Acquisition functions by Monte Carlo apply, such as
    `qLogExpectedImprovement(model, best_f)`, and `optimize_acqf`. The ENN computes in single precision unless
    `jax_enable_x64` is set.

    Needs `pip install 'epinet_eqx[botorch]'`.

    Args:
        enn: the ENN, of a regression whose input is a vector.
        draws: the indices.
        num_outputs: number of its outputs.
    """
    check_positive("num_outputs", num_outputs)
    return _model_class()(_Bridge(enn, check_draws(enn, draws)), num_outputs)
