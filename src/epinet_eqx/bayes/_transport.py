"""Any BNN as an ENN, by a transport map (Theorem 3 and Appendix C)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PyTree, Shaped

from ..indices import AbstractIndex
from ._bnn import AbstractBNN
from ._parameters import Skeleton


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
            base: the base network, any module that maps one example to its output. It gives the structure, and what is
                not a parameter; the values of its parameters are not used.
            map: the transport map: takes `nu` and one index to a module of the structure of `base`, or to its tree of
                parameters. A module with parameters of its own is trained with `nu`.
            index: the reference distribution.
            nu: the parameters $\nu$ of the distribution, any tree; its floating-point arrays are what is trained.
        """
        self.nu = nu
        self.map = map
        self.skeleton = Skeleton(base)
        self.index = index
        key = jax.eval_shape(jr.key, jax.ShapeDtypeStruct((), jnp.uint32))
        z = eqx.filter_eval_shape(lambda key: index.sample(key=key), key)
        # What the map returns is compared now, before anything is compiled or trained.
        eqx.filter_eval_shape(self.network_at, z)

    def network_at(self, z: Shaped[Array, "..."]) -> Callable[[PyTree[Array]], Float[Array, " classes"]]:
        """Return the base network with the parameters that the map gives for one index."""
        return self.skeleton.combine(self.map(self.nu, z), name="map(nu, z)")
