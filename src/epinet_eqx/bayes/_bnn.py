"""The form of a BNN as an ENN (Section 3.2 and Appendix C)."""

import abc
from collections.abc import Callable

import jax
from jaxtyping import Array, Float, PyTree, Shaped

from .._checks import check_shape
from .._enn import AbstractENN


class AbstractBNN(AbstractENN):
    r"""A base network whose parameters are a function of the index: $f'_\nu(x, z) = f_{\hat\theta_{\nu, z}}(x)$.

    This is the construction in the proof of Theorem 3. The network at an index does not depend on the input, so under
    a `vmap` over inputs its parameters are computed once per index.
    """

    @abc.abstractmethod
    def network_at(self, z: Shaped[Array, "..."]) -> Callable[[PyTree[Array]], Float[Array, " classes"]]:
        r"""Return the base network with the parameters $\hat\theta_{\nu, z}$."""

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the input: every layer may depend on the index."""
        return x

    def heads(self, embedding: PyTree[Array], zs: Shaped[Array, "samples ..."]) -> Float[Array, "samples classes"]:
        """Return the outputs of the networks at many indices."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))
        return jax.vmap(lambda z: self.network_at(z)(embedding))(zs)
