"""BNNs as ENNs: their form, and any of them by a transport map (Theorem 3 and Appendix C)."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PyTree, Shaped

from .._checks import check_shape
from .._enn import AbstractENN
from ..indices import AbstractIndex
from ._parameters import Skeleton


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


class Transport(AbstractBNN):
    r"""The ENN that expresses the BNN $(f, p)$: $f'_\nu(x, z) = f_{\hat\theta}(x)$ with $\hat\theta = T(\nu, z)$.

    $T(\nu, \cdot)$ transports the reference distribution $P_Z$ to the distribution $p_\nu$ of the BNN's parameters, so
    Eq. (3) holds. The other classes of `bayes` are special cases of this one that know more about their map.
    """

    nu: PyTree
    map: Callable[[Any, Shaped[Array, "..."]], PyTree]
    skeleton: Skeleton
    index: AbstractIndex

    def __init__(
        self,
        base: Callable[[PyTree[Array]], Float[Array, " classes"]],
        map: Callable[[Any, Shaped[Array, "..."]], PyTree],
        index: AbstractIndex,
        *,
        nu: PyTree = None,
    ):
        r"""Initialize from parts.

        Args:
            base: the base network, any module that maps one example to its output. Everything but the values of its
                parameters is used.
            map: the transport map: takes `nu` and one index to a module of the structure of `base`, or to its tree of
                parameters. If it is a module with parameters, they are trained together with `nu`.
            index: the reference distribution.
            nu: the parameters $\nu$ of the distribution, any tree; its floating-point arrays are trained.
        """
        self.nu = nu
        self.map = map
        self.skeleton = Skeleton(base)
        self.index = index
        key = jax.eval_shape(jr.key, jax.ShapeDtypeStruct((), jnp.uint32))
        z = eqx.filter_eval_shape(lambda key: index.sample(key=key), key)
        # Check the map's result now, before anything is compiled or trained.
        eqx.filter_eval_shape(self.network_at, z)

    def network_at(self, z: Shaped[Array, "..."]) -> Callable[[PyTree[Array]], Float[Array, " classes"]]:
        """Return the base network with the parameters that the map gives for one index."""
        return self.skeleton.combine(self.map(self.nu, z), name="map(nu, z)")
