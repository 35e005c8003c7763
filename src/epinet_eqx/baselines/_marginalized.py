"""The average prediction over several indices as the output of an ENN."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from .._checks import check_positive, check_shape
from .._enn import AbstractENN
from ..indices import AbstractIndex


class TupleIndex(AbstractIndex):
    """Several independent indices as one, along a leading axis."""

    index: AbstractIndex
    length: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all of them."""
        return (self.length, *self.index.shape)

    @property
    def size(self) -> int:
        """The number of entries of all of them."""
        return self.length * self.index.size

    def sample(self, *, key: PRNGKeyArray) -> Shaped[Array, "samples ..."]:
        """Draw all of them."""
        return self.index.sample_many(self.length, key=key)

    def score(self, z: Shaped[Array, "samples ..."], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Return the sum of a score of each, over the root of their number."""
        keys = jax.vmap(lambda number: jr.fold_in(key, number))(jnp.arange(self.length))
        scores = jax.vmap(lambda z, key: self.index.score(z, key=key))(z, keys)
        return jnp.sum(scores) / self.length**0.5

    def support(self) -> None:
        """Return None: the combinations of several indices are too many to enumerate."""
        return None


class Marginalized(AbstractENN):
    r"""Outputs $\ln \frac{1}{S} \sum_s \mathrm{softmax}(f_\theta(x, z_s))$: a classifier's average prediction.

    Its index is a tuple of `num_samples` indices. `CrossEntropy` of it is the log loss of the average prediction, which
    is what methods with noise in their logits are trained on, instead of the average log loss of Algorithm 1. Train
    this with `num_index_samples=1`; its `enn` is then what is evaluated.
    """

    enn: AbstractENN
    index: TupleIndex

    def __init__(self, enn: AbstractENN, num_samples: int):
        """Initialize with a classifier, and the number of indices to average over."""
        check_positive("num_samples", num_samples)
        self.enn = enn
        self.index = TupleIndex(enn.index, num_samples)

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding of the ENN."""
        return self.enn.embed(x)

    def heads(
        self, embedding: PyTree[Array], zs: Shaped[Array, "tuples samples ..."]
    ) -> Float[Array, "tuples classes"]:
        """Return the logarithms of the average predictions over many tuples."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))
        log_probs = jax.nn.log_softmax(jax.vmap(lambda z: self.enn.heads(embedding, z))(zs))
        return jax.nn.logsumexp(log_probs, axis=1) - jnp.log(float(self.index.length))
