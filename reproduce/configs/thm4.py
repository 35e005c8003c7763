"""Configuration of Theorem 4."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class EpinetTraining:
    """Theorem 4 by training: what gradient descent and Algorithm 1 find.

    Attributes:
        index_dims: dimensions of the index for gradient descent on the expected loss.
        descent_steps: its steps.
        index_dim: dimension of the index for Algorithm 1.
        num_steps: its steps, one training for each entry.
        batch_size: its examples per step.
        num_index_samples: its index samples per step.
        learning_rate: its learning rate, which falls to zero.
        num_seeds: how many epinets are trained at each dimension.
    """

    index_dims: tuple[int, ...] = (4, 16, 64)
    descent_steps: int = 1000
    index_dim: int = 8
    num_steps: tuple[int, ...] = (300, 3000, 30_000)
    batch_size: int = 10
    num_index_samples: int = 8
    learning_rate: float = 0.03
    num_seeds: int = 20


@dataclass(frozen=True, kw_only=True)
class EpinetOnData:
    """Theorem 4 on one data set: the distance to the posterior at each dimension of the index.

    Attributes:
        in_dim: size of the input.
        num_data: number of examples.
        noise_scale: standard deviation of the noise, in the data and in the loss.
        prior_scale: standard deviation of the prior, in the data and in the epinet.
        index_dims: dimensions of the index for the closed form.
        num_seeds: how many epinets at each dimension, each with perturbations and a prior of its own.
        tau: number of labels of a joint prediction.
        num_batches: over how many batches of test inputs joint predictions are averaged.
        training: whether epinets are trained on the data too, and how.
    """

    in_dim: int
    num_data: int
    noise_scale: float
    prior_scale: float
    index_dims: tuple[int, ...]
    num_seeds: int
    tau: int
    num_batches: int
    training: EpinetTraining | None


@dataclass(frozen=True, kw_only=True)
class LinearGaussianEpinet:
    """Theorem 4: the linear-Gaussian epinet against the exact posterior; one of the data sets is trained on."""

    in_dim: int = 10
    num_data: tuple[int, ...] = (5, 20, 80)
    trained_num_data: int = 20
    noise_scale: float = 1.0
    prior_scale: float = 2.0
    index_dims: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    num_seeds: int = 2000
    tau: int = 10
    num_batches: int = 16
    training: EpinetTraining = field(default_factory=EpinetTraining)

    def units(self) -> Mapping[str, EpinetOnData]:
        """Return one run per number of data."""
        return {
            f"data{num_data:03d}": EpinetOnData(
                in_dim=self.in_dim,
                num_data=num_data,
                noise_scale=self.noise_scale,
                prior_scale=self.prior_scale,
                index_dims=self.index_dims,
                num_seeds=self.num_seeds,
                tau=self.tau,
                num_batches=self.num_batches,
                training=self.training if num_data == self.trained_num_data else None,
            )
            for num_data in self.num_data
        }
