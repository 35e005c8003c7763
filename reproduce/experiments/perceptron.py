r"""The base network of Theorem 3 without the library: NumPy, double precision, and distributions of its parameters.

A BNN is sampled here as Section 3.2 defines it: draw $\hat\theta \sim p_\nu$, evaluate $f_{\hat\theta}$.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

IN_DIM, HIDDEN, NUM_CLASSES = 2, 6, 3
SHAPES = ((HIDDEN, IN_DIM), (HIDDEN,), (NUM_CLASSES, HIDDEN), (NUM_CLASSES,))

Parameters = tuple[np.ndarray, ...]
"""Weight and bias of the first layer, weight and bias of the second, with or without leading axes of samples."""

Outputs = Float64[np.ndarray, "*samples tau classes"]
Sampler = Callable[[np.random.Generator, int], Outputs]


def draw_parameters(generator: np.random.Generator, scale: float, *leading: int) -> Parameters:
    """Draw normal parameters, rounded to single precision so that the library can have the same."""
    return tuple(
        (scale * generator.standard_normal((*leading, *shape))).astype(np.float32).astype(np.float64)
        for shape in SHAPES
    )


def forward(parameters: Parameters, x: Float64[np.ndarray, "tau in"]) -> Outputs:
    """Return the outputs of a perceptron with one hidden layer."""
    weight_1, bias_1, weight_2, bias_2 = parameters
    hidden = np.maximum(x @ np.swapaxes(weight_1, -1, -2) + bias_1[..., None, :], 0.0)
    return hidden @ np.swapaxes(weight_2, -1, -2) + bias_2[..., None, :]


def flatten(parameters: Parameters) -> Float64[np.ndarray, "*samples parameters"]:
    """Return parameters as vectors."""
    leading = parameters[0].shape[:-2]
    return np.concatenate([array.reshape(*leading, -1) for array in parameters], axis=-1)


def unflatten(vectors: Float64[np.ndarray, "samples parameters"]) -> Parameters:
    """Return vectors as parameters."""
    ends = np.cumsum([np.prod(shape) for shape in SHAPES])[:-1]
    pieces = np.split(vectors, ends, axis=-1)
    return tuple(piece.reshape(-1, *shape) for piece, shape in zip(pieces, SHAPES, strict=True))


def gaussian_sampler(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> Sampler:
    """Return what samples the network whose parameters are jointly Gaussian."""
    values, vectors = np.linalg.eigh(covariance)
    # Of all roots the symmetric one: others depend on the eigenvectors, whose signs are not the same on all machines.
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T

    def sample(generator: np.random.Generator, count: int) -> Outputs:
        return forward(unflatten(mean + generator.standard_normal((count, mean.size)) @ root), x)

    return sample


def independent_sampler(x: np.ndarray, mean: Parameters, scale: Parameters) -> Sampler:
    """Return what samples the network whose parameters are Gaussian and independent."""

    def sample(generator: np.random.Generator, count: int) -> Outputs:
        pairs = zip(mean, scale, strict=True)
        return forward(tuple(generator.normal(m, s, (count, *m.shape)) for m, s in pairs), x)

    return sample


class Atoms(NamedTuple):
    """A finite distribution of outputs."""

    probs: Float64[np.ndarray, " samples"]
    outputs: Outputs

    @classmethod
    def equally_likely(cls, outputs: Outputs) -> "Atoms":
        """Return the uniform distribution over these outputs."""
        return cls(np.full(len(outputs), 1 / len(outputs)), outputs)

    def sample(self, generator: np.random.Generator, count: int) -> Outputs:
        """Draw outputs."""
        return self.outputs[generator.choice(len(self.probs), size=count, p=self.probs)]


def masked_atoms(parameters: Parameters, x: Float64[np.ndarray, "tau in"], rate: float) -> Atoms:
    """Return the outputs with each mask of the hidden units, and how likely each mask is."""
    weight_1, bias_1, weight_2, bias_2 = parameters
    masks = np.stack(np.meshgrid(*[[0.0, 1.0]] * HIDDEN, indexing="ij"), axis=-1).reshape(-1, HIDDEN)
    hidden = np.maximum((x @ weight_1.T + bias_1) * masks[:, None, :] / (1 - rate), 0.0)
    return Atoms(np.prod(np.where(masks == 1, 1 - rate, rate), axis=1), hidden @ weight_2.T + bias_2)
