"""The form of a loss in Algorithm 1."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._enn import AbstractENN
from .._tree import trainable_mask
from ..indices import AbstractIndex
from ._bootstrap import AbstractBootstrap
from ._penalty import AbstractPenalty


class AbstractLoss(eqx.Module):
    r"""A loss $\ell(\theta, z, x_i, y_i, i)$ of one example at one index, as Algorithm 1 has it.

    It is `weight * (data_loss + penalty)`. The parts are methods of their own, so that an average over a batch runs the
    base network once per input and the penalty once per index (see `mean_loss`).
    """

    penalty: eqx.AbstractVar[AbstractPenalty]
    bootstrap: eqx.AbstractVar[AbstractBootstrap | None]
    noise_key: eqx.AbstractVar[PRNGKeyArray | None]

    @abc.abstractmethod
    def data_loss(
        self, output: Float[Array, " classes"], y: Shaped[Array, "..."], score: Float[Array, " classes"]
    ) -> Float[Array, ""]:
        """Return the loss of an output, without penalty and weight.

        Args:
            output: output of the ENN at one input and one index.
            y: the target.
            score: standard normal scores for a perturbation of the target; zeros if `noise_key` is None.
        """

    @abc.abstractmethod
    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> None:
        """Raise unless the targets of a batch are what an ENN with this many outputs can be trained on."""

    def weight(self, index: AbstractIndex, z: Shaped[Array, "..."], i: Int[Array, ""]) -> Float[Array, ""]:
        """Return the bootstrap weight of example `i` at index `z`; one without a bootstrap."""
        if self.bootstrap is None:
            return jnp.ones(())
        return self.bootstrap.weight(index.score(z, key=jr.fold_in(self.bootstrap.key, i)))

    def score(
        self, index: AbstractIndex, z: Shaped[Array, "..."], i: Int[Array, ""], num_outputs: int
    ) -> Float[Array, " classes"]:
        r"""Return the scores that `data_loss` gets for example `i` at index `z`: $c_i^\top z$, one $c$ per output.

        Output $k$ of example $i$ is observation $iC + k$, so a single output has the $c_i$ of Eq. (9).
        """
        if self.noise_key is None:
            return jnp.zeros(num_outputs)
        key = self.noise_key
        observations = i * num_outputs + jnp.arange(num_outputs)
        return jax.vmap(lambda n: index.score(z, key=jr.fold_in(key, n)))(observations)

    def __call__(
        self,
        enn: AbstractENN,
        z: Shaped[Array, "..."],
        x: PyTree[Array],
        y: Shaped[Array, "..."],
        i: Int[Array, ""],
    ) -> Float[Array, ""]:
        """Return the loss of example number `i` at index `z`."""
        output = enn(x, z)
        data = self.data_loss(output, y, self.score(enn.index, z, i, output.shape[0]))
        penalty = self.penalty(enn, eqx.filter(enn, trainable_mask(enn)), z)
        return self.weight(enn.index, z, i) * (data + penalty)
