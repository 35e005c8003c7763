"""Training an ENN on the labels of a pool queried so far (Algorithm 1)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._checks import check_positive, check_scalar
from .._enn import AbstractENN
from .._keys import named_keys
from ..losses import AbstractLoss, Batch, share_prior
from ..training import EpistemicObjective, UniformBatches, init_state, train_steps


class PoolLearner(eqx.Module):
    """Trains an ENN from scratch in each round, for the same number of steps."""

    make_enn: Callable[[PRNGKeyArray], AbstractENN]
    loss: AbstractLoss | Callable[[PRNGKeyArray], AbstractLoss]
    optimizer: optax.GradientTransformation
    num_steps: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    num_index_samples: int = eqx.field(static=True)
    prior_power: Float[Array, ""]

    def __init__(
        self,
        make_enn: Callable[[PRNGKeyArray], AbstractENN],
        loss: AbstractLoss | Callable[[PRNGKeyArray], AbstractLoss],
        *,
        optimizer: optax.GradientTransformation | None = None,
        num_steps: int = 500,
        batch_size: int = 32,
        num_index_samples: int = 8,
        prior_power: float | Float[Array, ""] = 1.0,
    ):
        """Initialize the learner.

        Args:
            make_enn: makes the ENN before training from a key.
            loss: the loss, or a function that makes it from a key. Its penalty is that of all labels together: it is
                divided by their number, as in `ENNAgent`.
            optimizer: any optax optimizer; Adam with a learning rate of 1e-3 by default.
            num_steps: training steps of a round.
            batch_size: number of examples of a step, drawn uniformly with replacement.
            num_index_samples: index samples of a step.
            prior_power: power of the number of labels that the penalty is divided by, as in `ENNAgent`.
        """
        check_positive("num_steps", num_steps)
        check_positive("batch_size", batch_size)
        check_positive("num_index_samples", num_index_samples)
        self.make_enn = make_enn
        self.loss = loss
        self.optimizer = optax.adam(1e-3) if optimizer is None else optimizer
        self.num_steps = num_steps
        self.batch_size = batch_size
        self.num_index_samples = num_index_samples
        self.prior_power = check_scalar("prior_power", jnp.asarray(prior_power, dtype=float), minimum=0.0)

    def train(self, data: Batch, num_labels: Int[Array, ""], *, key: PRNGKeyArray) -> AbstractENN:
        """Return the ENN trained on the first `num_labels` examples; all parameters are NaN if training diverged."""
        enn_key, loss_key, train_key = named_keys(key, "enn", "loss", "train")
        loss = self.loss if isinstance(self.loss, AbstractLoss) else self.loss(loss_key)
        state, _ = train_steps(
            init_state(self.make_enn(enn_key), self.optimizer, key=train_key),
            data,
            EpistemicObjective(
                share_prior(loss, num_labels.astype(float) ** self.prior_power),
                num_index_samples=self.num_index_samples,
            ),
            self.optimizer,
            batches=UniformBatches(self.batch_size),
            num_steps=self.num_steps,
            data_size=num_labels,
        )
        diverged = state.step < self.num_steps
        return jax.tree.map(
            lambda leaf: jnp.where(diverged, jnp.nan, leaf) if eqx.is_inexact_array(leaf) else leaf, state.model
        )
