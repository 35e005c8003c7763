"""Configuration of Theorem 4."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EpinetConvergence:
    """Theorem 4 in closed form on one data set: the distance to the posterior at each dimension of the index.

    Attributes:
        in_dim: size of the input.
        num_data: number of examples.
        noise_scale: standard deviation of the noise, in the data and in the loss.
        prior_scale: standard deviation of the prior, in the data and in the epinet.
        index_dims: dimensions of the index.
        num_seeds: how many epinets at each dimension, each with perturbations and a prior of its own.
        tau: number of labels of a joint prediction.
        num_batches: over how many batches of test inputs joint predictions are averaged.
    """

    in_dim: int
    num_data: int
    noise_scale: float
    prior_scale: float
    index_dims: tuple[int, ...]
    num_seeds: int
    tau: int
    num_batches: int


@dataclass(frozen=True, kw_only=True)
class EpinetTraining:
    """Theorem 4 by training: what gradient descent and Algorithm 1 find.

    Attributes:
        in_dim: size of the input.
        num_data: number of examples.
        noise_scale: standard deviation of the noise, in the data and in the loss.
        prior_scale: standard deviation of the prior, in the data and in the epinet.
        index_dims: dimensions of the index for gradient descent on the expected loss.
        descent_steps: its steps.
        index_dim: dimension of the index for Algorithm 1.
        num_steps: its steps, one training for each entry.
        batch_size: its examples per step.
        num_index_samples: its index samples per step.
        learning_rate: its learning rate, which falls to zero.
        num_seeds: how many epinets it trains.
        tau: number of labels of a joint prediction.
        num_batches: over how many batches of test inputs joint predictions are averaged.
    """

    in_dim: int
    num_data: int
    noise_scale: float
    prior_scale: float
    index_dims: tuple[int, ...]
    descent_steps: int
    index_dim: int
    num_steps: tuple[int, ...]
    batch_size: int
    num_index_samples: int
    learning_rate: float
    num_seeds: int
    tau: int
    num_batches: int


@dataclass(frozen=True, kw_only=True)
class LinearGaussianEpinet:
    """Theorem 4: the linear-Gaussian epinet against the exact posterior."""

    in_dim: int = 10
    num_data: tuple[int, ...] = (5, 20, 80)
    noise_scale: float = 1.0
    prior_scale: float = 2.0
    index_dims: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    num_seeds: int = 2000
    tau: int = 10
    num_batches: int = 16
    training_num_data: int = 20
    training_index_dims: tuple[int, ...] = (4, 16, 64)
    descent_steps: int = 1000
    training_index_dim: int = 8
    num_steps: tuple[int, ...] = (300, 3000, 30_000)
    batch_size: int = 10
    num_index_samples: int = 8
    learning_rate: float = 0.03
    training_seeds: int = 20

    def units(self) -> Mapping[str, EpinetConvergence | EpinetTraining]:
        """Return one run per number of data, and the training."""
        runs = {
            f"convergence_data{num_data:03d}": EpinetConvergence(
                in_dim=self.in_dim,
                num_data=num_data,
                noise_scale=self.noise_scale,
                prior_scale=self.prior_scale,
                index_dims=self.index_dims,
                num_seeds=self.num_seeds,
                tau=self.tau,
                num_batches=self.num_batches,
            )
            for num_data in self.num_data
        }
        training = EpinetTraining(
            in_dim=self.in_dim,
            num_data=self.training_num_data,
            noise_scale=self.noise_scale,
            prior_scale=self.prior_scale,
            index_dims=self.training_index_dims,
            descent_steps=self.descent_steps,
            index_dim=self.training_index_dim,
            num_steps=self.num_steps,
            batch_size=self.batch_size,
            num_index_samples=self.num_index_samples,
            learning_rate=self.learning_rate,
            num_seeds=self.training_seeds,
            tau=self.tau,
            num_batches=self.num_batches,
        )
        return {**runs, "training": training}
