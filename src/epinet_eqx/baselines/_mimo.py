"""Several predictions of one network for several inputs (Havasi et al., 2021): the baseline "mimo" (Section 6)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._checks import check_positive, num_examples
from .._enn import AbstractENN
from .._keys import named_keys
from ..indices import ParticleIndex
from ..losses import AbstractBootstrap, AbstractLoss, AbstractPenalty, Batch


class MIMO(AbstractENN):
    """A network of several inputs and outputs, one of each per member; the index picks the member.

    The inputs of the members are concatenated along the first axis: the channels of an image, the entries of a vector.
    So are their outputs. When predicting, all members get the same input, so one run of the network gives all
    predictions.

    Train it as a conventional network on tuples of examples: `Deterministic(network)` with `mimo_batch` and `MIMOLoss`.
    On data in memory, draw new tuples as often as you like, and continue from the state:

        state = Deterministic(network)
        for epoch in range(num_epochs):
            tuples = mimo_batch(data, key=jr.fold_in(key, epoch))
            state = fit(state, tuples, MIMOLoss(CrossEntropy()), num_steps=..., key=key).state
        enn = MIMO(state.model.network)

    On a stream, `fit(..., (mimo_batch(batch, key=jr.fold_in(key, t)) for t, batch in enumerate(stream)), ...)`.
    """

    network: Callable[[PyTree[Array]], Float[Array, " outputs"]]
    index: ParticleIndex

    def __init__(self, network: Callable[[PyTree[Array]], Float[Array, " outputs"]], num_members: int = 2):
        """Initialize from parts.

        Args:
            network: maps the concatenated inputs of all members to `num_members` times the number of classes.
            num_members: number of members.
        """
        check_positive("num_members", num_members)
        self.network = network
        self.index = ParticleIndex(num_members)

    def embed(self, x: PyTree[Array]) -> Float[Array, "particles classes"]:
        """Return the outputs of all members for one input, from one run of the network."""
        members = self.index.num_particles
        outputs = self.network(jax.tree.map(lambda leaf: jnp.concatenate([leaf] * members, axis=0), x))
        return _split(outputs, members)

    def heads(
        self, embedding: Float[Array, "particles classes"], zs: Int[Array, " samples"]
    ) -> Float[Array, "samples classes"]:
        """Return the outputs of many members."""
        self.index.check(zs)
        return embedding[zs]


def _split(outputs: Float[Array, " outputs"], num_members: int) -> Float[Array, "particles classes"]:
    """Return the outputs with one row per member."""
    if outputs.ndim != 1 or outputs.shape[0] % num_members != 0:
        raise ValueError(
            f"`network` must have equally many outputs for each of {num_members} members; got shape {outputs.shape}."
        )
    return outputs.reshape(num_members, -1)


class MIMOLoss(AbstractLoss):
    """The sum over members of a loss of each member's output at its own target."""

    loss: AbstractLoss
    num_members: int = eqx.field(static=True)

    def __init__(self, loss: AbstractLoss, num_members: int = 2):
        """Initialize with the loss of one member and their number; penalty and bootstrap are applied once."""
        check_positive("num_members", num_members)
        self.loss = loss
        self.num_members = num_members

    @property
    def penalty(self) -> AbstractPenalty:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The penalty of the loss."""
        return self.loss.penalty

    @property
    def bootstrap(self) -> AbstractBootstrap | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The bootstrap of the loss, by the number of the first member's example."""
        return self.loss.bootstrap

    @property
    def noise_key(self) -> PRNGKeyArray | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The key of the loss for perturbed targets."""
        return self.loss.noise_key

    def data_loss(
        self, output: Float[Array, " outputs"], y: Shaped[Array, "particles ..."], score: Float[Array, " outputs"]
    ) -> Float[Array, ""]:
        """Return the sum of the members' losses."""
        outputs, scores = _split(output, self.num_members), _split(score, self.num_members)
        return jnp.sum(jax.vmap(self.loss.data_loss)(outputs, y, scores))

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> None:
        """Raise unless `y` holds one target per example and member."""
        if y.ndim < 2 or y.shape[1] != self.num_members:
            raise ValueError(
                f"`y` must hold one target for each of {self.num_members} members, as `mimo_batch` makes them; "
                f"got shape {y.shape}."
            )
        if num_outputs % self.num_members != 0:
            raise ValueError(f"`num_members` must divide the number of outputs, {num_outputs}; got {self.num_members}.")
        self.loss.check_targets(y.reshape(-1, *y.shape[2:]), num_outputs // self.num_members)


def mimo_batch(
    batch: Batch,
    *,
    num_members: int = 2,
    repeat_probability: float = 0.6,
    num_repeats: int = 1,
    key: PRNGKeyArray,
) -> Batch:
    """Return a batch of tuples of examples, one example per member, for the training of `MIMO`.

    In a fraction `repeat_probability` of the tuples all members have the same example; in the others, each has its own.
    Every member sees every example equally often. A pure function.

    Args:
        batch: examples; a whole data set or a part of it.
        num_members: number of members.
        repeat_probability: fraction of the tuples with one example for all members, rounded to whole tuples.
        num_repeats: number of tuples per example; the reference has 2.
        key: random key.

    Returns:
        Inputs concatenated along their first axis, targets with a leading axis of members, and the numbers of the first
        member's examples.
    """
    check_positive("num_members", num_members)
    check_positive("num_repeats", num_repeats)
    if not 0 <= repeat_probability <= 1:
        raise ValueError(f"`repeat_probability` must be from 0 to 1; got {repeat_probability}.")
    for leaf in jax.tree.leaves(batch.x):
        if leaf.ndim < 2:
            raise ValueError(f"`batch` must hold inputs with an axis to concatenate; got shape {leaf.shape}.")
    first_key, member_key = named_keys(key, "first", "members")
    count = num_examples("batch", batch) * num_repeats
    first = jr.permutation(first_key, count) // num_repeats
    shared = round(repeat_probability * count)
    ids = [first] + [
        jnp.concatenate([first[:shared], jr.permutation(jr.fold_in(member_key, member), first[shared:])])
        for member in range(1, num_members)
    ]
    x = jax.tree.map(lambda leaf: jnp.concatenate([leaf[own] for own in ids], axis=1), batch.x)
    return Batch(x, jnp.stack([batch.y[own] for own in ids], axis=1), batch.i[first])
