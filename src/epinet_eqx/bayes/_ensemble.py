"""Ensembles: a single network, several of them, or samples of a posterior (Section 3.2)."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._checks import is_traced, require
from .._enn import AbstractENN
from .._stack import num_stacked, stack, take
from .._tree import as_arrays
from ..indices import ParticleIndex
from ._parameters import Skeleton, parameters_of


class Deterministic(AbstractENN):
    """A conventional network as the ENN that ignores its index: its joint predictions are the products of Eq. (1)."""

    network: Callable[[PyTree[Array]], Float[Array, " classes"]]
    index: ParticleIndex

    def __init__(self, network: Callable[[PyTree[Array]], Float[Array, " classes"]]):
        """Initialize with a network, any callable that maps one example to its output."""
        self.network = network
        self.index = ParticleIndex(1)

    def embed(self, x: PyTree[Array]) -> Float[Array, " classes"]:
        """Return the output of the network."""
        return self.network(x)

    def heads(self, embedding: Float[Array, " classes"], zs: Int[Array, " samples"]) -> Float[Array, "samples classes"]:
        """Return the output of the network, once per index."""
        return jnp.broadcast_to(embedding, (zs.shape[0], *embedding.shape))


def _output(particle: Callable[..., Float[Array, " classes"]], x: PyTree[Array]) -> Float[Array, " classes"]:
    """Return the output of one particle: a network, or an ENN with one value of the index."""
    return particle(x, jnp.zeros((), int)) if isinstance(particle, AbstractENN) else particle(x)


class Ensemble(AbstractENN):
    """Particles of one structure, one of which the index picks, all equally likely.

    The BNN whose distribution puts equal weight on finitely many parameters. Particles are networks, or ENNs with one
    value of the index: `WithPrior` particles make "ensemble+". A shared trunk runs once per input, in `embed`.
    """

    particles: Callable[..., Float[Array, " classes"]]
    trunk: Callable[[PyTree[Array]], PyTree[Array]] | None
    index: ParticleIndex

    def __init__(
        self,
        particles: Callable[..., Float[Array, " classes"]],
        trunk: Callable[[PyTree[Array]], PyTree[Array]] | None = None,
    ):
        """Initialize from stacked particles.

        Args:
            particles: a module that maps one example to its output, with a leading axis on every array, as
                `eqx.filter_vmap(make_particle)(keys)` makes it.
            trunk: maps one example to the input of the particles; by default that is the example itself.
        """
        if isinstance(particles, AbstractENN) and particles.index != ParticleIndex(1):
            raise ValueError(
                "`particles` must be networks, or ENNs with one value of the index such as `Deterministic`; "
                f"got {type(particles).__name__} with index {particles.index}."
            )
        self.particles = particles
        self.trunk = trunk
        self.index = ParticleIndex(num_stacked("particles", particles))

    @classmethod
    def of(
        cls,
        particles: Sequence[Callable[..., Any]],
        trunk: Callable[[PyTree[Array]], PyTree[Array]] | None = None,
    ) -> "Ensemble":
        """Return the ensemble of separately trained modules, which must have one structure."""
        return cls(stack("particles", particles), trunk)

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the input of all particles: the example, or the output of the trunk."""
        return x if self.trunk is None else self.trunk(x)

    def heads(self, embedding: PyTree[Array], zs: Int[Array, " samples"]) -> Float[Array, "samples classes"]:
        """Return the outputs of many particles, with no more runs than particles."""
        self.index.check(zs)
        if zs.shape[0] < self.index.num_particles:
            return jax.vmap(lambda z: _output(take(self.particles, z), embedding))(zs)
        return eqx.filter_vmap(lambda particle: _output(particle, embedding))(self.particles)[zs]


def _finite(leaves: list[Array]) -> Bool[Array, " particles"]:
    """Return which samples are finite in all their parameters."""
    each = [jnp.all(jnp.isfinite(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in leaves]
    return jnp.all(jnp.stack(each), axis=0)


def from_samples(
    module: Callable[[PyTree[Array]], Float[Array, " classes"]],
    samples: PyTree,
    *,
    drop_nonfinite: bool = False,
) -> Ensemble:
    """Return samples of a network's parameters as an ENN whose index picks one, all equally likely.

    As an ENN, a stack of samples is an ensemble, so this returns an `Ensemble`.

    Args:
        module: any module that maps one example to its output. Everything but the values of its parameters is used;
            frozen arrays are repeated for each sample.
        samples: the module's parameters with a leading axis, as `run_chain` returns them: a module of this structure,
            or its parameter tree.
        drop_nonfinite: whether to leave out samples of a chain that diverged instead of raising an error.
    """
    skeleton = Skeleton(module)
    stacked = parameters_of(as_arrays(samples))
    count = num_stacked("samples", stacked)
    leaves = skeleton.leaves("samples", stacked, leading=(count,))
    finite = _finite(leaves)
    if drop_nonfinite:
        if is_traced(finite):
            raise ValueError("`drop_nonfinite` must be False inside a transformation such as `jit`; got True.")
        leaves = [leaf[finite] for leaf in leaves]
        if not jnp.any(finite):
            raise ValueError(
                f"`samples` must hold a finite sample; got {finite.shape[0]} non-finite ones and no other."
            )
    else:
        bad = "" if is_traced(finite) else f"; got {int(jnp.sum(~finite))} non-finite of {count} samples"
        message = f"`samples` must be finite, but a chain diverged{bad}. Pass `drop_nonfinite=True` to leave them out."
        leaves = require(leaves, ~jnp.all(finite), message)
    return Ensemble(skeleton.stacked(leaves))


def from_blackjax(
    module: Callable[[PyTree[Array]], Float[Array, " classes"]],
    states: Any,
    *,
    num_chains: int | None = None,
    drop_nonfinite: bool = False,
) -> Ensemble:
    """Return the states of a blackjax sampler as an ENN (`pip install epinet_eqx[mcmc]` brings blackjax).

    Args:
        module: the module whose parameters were sampled.
        states: the states, stacked along a leading axis as `lax.scan` stacks them, or their `position`: the module's
            parameter tree, or vectors that `split_parameters(module)` makes and rebuilds.
        num_chains: if given, a leading axis of this size comes before that of the samples; chains are joined.
        drop_nonfinite: as for `from_samples`.
    """
    positions = as_arrays(getattr(states, "position", states))
    if num_chains is not None:
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters_of(positions)):
            if leaf.ndim < 2 or leaf.shape[0] != num_chains:
                raise ValueError(
                    f"`states{jax.tree_util.keystr(path)}` must have leading axes for {num_chains} chains and their "
                    f"samples; got shape {leaf.shape}."
                )
        positions = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), parameters_of(positions))
    if eqx.is_array(positions):
        skeleton = Skeleton(module)
        if positions.ndim != 2 or positions.shape[1] != skeleton.size:
            raise ValueError(f"`states` must hold vectors of {skeleton.size} parameters; got shape {positions.shape}.")
        positions = jax.vmap(skeleton.unflatten)(positions)
    return from_samples(module, positions, drop_nonfinite=drop_nonfinite)
