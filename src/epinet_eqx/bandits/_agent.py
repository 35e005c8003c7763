"""Agents for bandits: the interface, and the agent that learns an ENN from a replay buffer."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._checks import Scalar, check_function, check_positive, check_scalar
from .._draws import outputs_at
from .._enn import AbstractENN
from .._keys import named_keys
from .._tree import trainable_mask
from ..losses import AbstractLoss, Batch, anchored, share_prior
from ..training import EpistemicObjective, TrainState, loop_steps
from ._reward_models import AbstractRewardModel
from ._rules import AbstractRule


class ReplayBuffer(eqx.Module):
    """A ring buffer; each observation keeps the number that identifies it to the bootstrap.

    The count of observations is an argument, not a field: it is shared by all members of a `vmap`, which then write to
    the same slot.
    """

    data: Batch

    @classmethod
    def empty(cls, x: PyTree[Any], y: Any, capacity: int) -> "ReplayBuffer":
        """Return a buffer of zeros for inputs and targets of these shapes."""

        def zeros(leaf: Any) -> Array:
            return jnp.zeros((capacity, *leaf.shape), leaf.dtype)

        return cls(Batch(jax.tree.map(zeros, x), zeros(y), jnp.zeros(capacity, jnp.int32)))

    @property
    def capacity(self) -> int:
        """The number of observations that are kept."""
        return self.data.i.shape[-1]

    def add(self, number: Int[Array, ""], x: PyTree[Array], y: Shaped[Array, "..."]) -> "ReplayBuffer":
        """Return the buffer with observation `number`, counted from zero, in place of the oldest."""
        slot = number % self.capacity
        new = (x, y, number.astype(jnp.int32))
        old = (self.data.x, self.data.y, self.data.i)
        # Setting an entry would broadcast it.
        shapes = [jax.tree.map(lambda leaf: leaf.shape[1:], old[0]), jax.tree.map(jnp.shape, x)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"`x` must have the shape of a candidate, {shapes[0]}; got {shapes[1]}.")
        return ReplayBuffer(Batch(*jax.tree.map(lambda leaf, entry: leaf.at[slot].set(entry), old, new)))

    def sample(self, count: Int[Array, ""], batch_size: int, *, key: PRNGKeyArray) -> Batch:
        """Draw observations uniformly, with replacement, after `count` have been added."""
        slots = jr.randint(key, (batch_size,), 0, jnp.minimum(count, self.capacity))
        return jax.tree.map(lambda leaf: leaf[slots], self.data)


class AbstractBanditAgent(eqx.Module):
    """An agent that acts and learns by pure functions of its state, a pytree; `OnlineLearner` keeps the state."""

    @abc.abstractmethod
    def init(self, inputs: PyTree[Any], capacity: int, *, key: PRNGKeyArray) -> PyTree:
        """Return the state before the first observation, for at most `capacity` of them; `inputs` has their shapes."""

    @abc.abstractmethod
    def policy(self, state: PyTree, inputs: PyTree[Array], *, key: PRNGKeyArray) -> Float[Array, " actions"]:
        """Return the probability of each action; NaN if the agent has failed."""

    @abc.abstractmethod
    def observe(
        self, state: PyTree, step: Int[Array, ""], x: PyTree[Array], reward: Float[Array, ""], *, key: PRNGKeyArray
    ) -> PyTree:
        """Return the state after action `x` earned `reward` in step `step`, counted from zero."""

    @abc.abstractmethod
    def check_rewards(self, rewards: Float[Array, "*steps"]) -> Float[Array, "*steps"]:
        """Return the rewards of a run; raise if the agent cannot learn from them."""


def check_agent(agent: Any) -> None:
    """Raise unless `agent` is one."""
    if not isinstance(agent, AbstractBanditAgent):
        raise ValueError(f"`agent` must be an agent, such as `ENNAgent`; got {type(agent).__name__}.")


class LearnerState(eqx.Module):
    """State of an `ENNAgent`.

    Attributes:
        enn: the ENN.
        opt_state: state of the optimizer; None if the agent does not learn.
        loss: the loss of this run.
        buffer: the observations.
        ok: whether all updates were finite.
    """

    enn: AbstractENN
    opt_state: PyTree
    loss: AbstractLoss
    buffer: ReplayBuffer
    ok: Bool[Array, ""]


class ENNAgent(AbstractBanditAgent):
    """Predicts rewards with an ENN, acts by a rule on coherent samples, and trains on its observations.

    Works with any ENN. The penalty of the loss is the prior: it is divided by the number of observations (or a power of
    it), because the data term is a mean over them. If an update is not finite, the ENN is kept and the agent fails.

    With a `view` it acts by an ENN made of the one that it learns: a conventional network with the joint predictions of
    a Pitman-Yor head, by `view=pitman_yor.OnMean(field)`, is trained as usual, and its head says which actions are
    uncertain together.
    """

    make_enn: Callable[[PRNGKeyArray], AbstractENN]
    loss: AbstractLoss | Callable[[PRNGKeyArray], AbstractLoss]
    reward_model: AbstractRewardModel
    rule: AbstractRule
    optimizer: optax.GradientTransformation
    num_updates: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    num_index_samples: int | None = eqx.field(static=True)
    buffer_size: int | None = eqx.field(static=True)
    anchored: bool = eqx.field(static=True)
    prior_power: Float[Array, ""]
    view: Callable[[AbstractENN], AbstractENN] | None

    def __init__(
        self,
        make_enn: Callable[[PRNGKeyArray], AbstractENN],
        loss: AbstractLoss | Callable[[PRNGKeyArray], AbstractLoss],
        reward_model: AbstractRewardModel,
        rule: AbstractRule,
        *,
        optimizer: optax.GradientTransformation | None = None,
        num_updates: int = 1,
        batch_size: int = 32,
        num_index_samples: int | None = 8,
        buffer_size: int | None = None,
        anchored: bool = False,
        prior_power: Scalar = 1.0,
        view: Callable[[AbstractENN], AbstractENN] | None = None,
    ):
        """Initialize the agent.

        Args:
            make_enn: builds the initial ENN from a key.
            loss: the loss, or a function that builds it from a key, so that each run has its own bootstrap. Its penalty
                is that of all observations together.
            reward_model: maps outputs to expected rewards.
            rule: chooses an action.
            optimizer: any optax optimizer; Adam with a learning rate of 1e-3 by default.
            num_updates: training steps after each action; 0 to never learn.
            batch_size: number of observations of an update, drawn uniformly with replacement.
            num_index_samples: index samples of an update; None takes each index of a finite support once, which trains
                all particles of an ensemble.
            buffer_size: number of latest observations that are kept; by default all.
            anchored: whether the penalty pulls toward the initial parameters instead of zero; it must be `L2`.
            prior_power: the penalty is divided by this power of the number of observations: 1 for a prior, less for a
                penalty tuned to decay more slowly, such as that of the testbed's epinet.
            view: makes the ENN that the agent acts by of the one that it learns; by default they are the same.
        """
        check_function("make_enn", make_enn)
        if not isinstance(reward_model, AbstractRewardModel):
            raise ValueError(
                f"`reward_model` must be one, such as `GaussianReward()`; got {type(reward_model).__name__}."
            )
        if not isinstance(rule, AbstractRule):
            raise ValueError(f"`rule` must be one, such as `ThompsonSampling()`; got {type(rule).__name__}.")
        if isinstance(num_updates, bool) or not isinstance(num_updates, int) or num_updates < 0:
            raise ValueError(f"`num_updates` must be an integer of at least 0; got {num_updates!r}.")
        check_positive("batch_size", batch_size)
        for name, value in (("num_index_samples", num_index_samples), ("buffer_size", buffer_size)):
            if value is not None:
                check_positive(name, value)
        self.make_enn = make_enn
        self.loss = loss
        self.reward_model = reward_model
        self.rule = rule
        self.optimizer = optax.adam(1e-3) if optimizer is None else optimizer
        self.num_updates = num_updates
        self.batch_size = batch_size
        self.num_index_samples = num_index_samples
        self.buffer_size = buffer_size
        self.anchored = anchored
        self.prior_power = check_scalar("prior_power", prior_power, minimum=0.0)
        self.view = view

    def init(self, inputs: PyTree[Any], capacity: int, *, key: PRNGKeyArray) -> LearnerState:
        """Return the state before the first step."""
        enn_key, loss_key = named_keys(key, "enn", "loss")
        enn = self.make_enn(enn_key)
        loss = self.loss if isinstance(self.loss, AbstractLoss) else self.loss(loss_key)
        loss = anchored(loss, enn) if self.anchored else loss
        if self.num_index_samples is None and enn.index.support() is None:
            raise ValueError(
                "`num_index_samples` must be given for an index without a finite support, "
                f"{type(enn.index).__name__}; got None."
            )
        x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), inputs)
        y = jax.eval_shape(self.reward_model.target, jax.ShapeDtypeStruct((), jnp.zeros(()).dtype))
        buffer = ReplayBuffer.empty(x, y, capacity if self.buffer_size is None else min(capacity, self.buffer_size))
        opt_state = None
        if self.num_updates > 0:
            opt_state = self.optimizer.init(eqx.filter(enn, trainable_mask(enn)))
        return LearnerState(enn, opt_state, loss, buffer, jnp.array(True))

    def sample_rewards(
        self, enn: AbstractENN, inputs: PyTree[Array], *, key: PRNGKeyArray
    ) -> Float[Array, "samples actions"]:
        """Return the expected reward of every action at sampled indices of `enn`, shared by all actions."""
        zs = enn.index.sample_many(self.rule.num_samples, key=key)
        outputs = outputs_at(enn, jax.vmap(enn.embed)(inputs), zs)
        return jax.vmap(jax.vmap(self.reward_model.expected))(outputs)

    def policy(self, state: LearnerState, inputs: PyTree[Array], *, key: PRNGKeyArray) -> Float[Array, " actions"]:
        """Return the rule's probability of each action."""
        enn = state.enn if self.view is None else self.view(state.enn)
        probs = self.rule.probs(self.sample_rewards(enn, inputs, key=key))
        return jnp.where(state.ok, probs, jnp.nan)

    def observe(
        self,
        state: LearnerState,
        step: Int[Array, ""],
        x: PyTree[Array],
        reward: Float[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> LearnerState:
        """Add the observation to the buffer and run the updates."""
        buffer = state.buffer.add(step, x, self.reward_model.target(reward))
        state = LearnerState(state.enn, state.opt_state, state.loss, buffer, state.ok)
        return state if self.num_updates == 0 else self._train(state, step + 1, key=key)

    def check_rewards(self, rewards: Float[Array, "*steps"]) -> Float[Array, "*steps"]:
        """Return the rewards of a run; they must be in the support of the reward model."""
        return self.reward_model.check_rewards(rewards)

    def _draw(
        self, state: LearnerState, count: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[Batch, Shaped[Array, "samples ..."]]:
        """Return the examples and the indices of one update."""
        batch_key, index_key = named_keys(key, "batch", "index")
        batch = state.buffer.sample(count, self.batch_size, key=batch_key)
        index = state.enn.index
        zs = (
            index.support()
            if self.num_index_samples is None
            else index.sample_many(self.num_index_samples, key=index_key)
        )
        assert zs is not None
        return batch, zs

    def _train(self, state: LearnerState, count: Int[Array, ""], *, key: PRNGKeyArray) -> LearnerState:
        """Run the updates of one step, with `count` observations so far."""
        observed = jnp.minimum(count, state.buffer.capacity).astype(float)
        objective = EpistemicObjective(share_prior(state.loss, observed**self.prior_power))

        def draw(number: Int[Array, ""]) -> tuple[Any, Batch]:
            batch, zs = self._draw(state, count, key=jr.fold_in(key, number))
            return objective.at(zs), batch

        start = TrainState(
            model=state.enn,
            model_state=None,
            opt_state=state.opt_state,
            ema=None,
            step=jnp.zeros((), jnp.int32),
            key=key,
            mask=trainable_mask(state.enn),
        )
        new, _, ok = loop_steps(start, draw, self.optimizer, num_steps=self.num_updates, ok=state.ok)
        return LearnerState(new.model, new.opt_state, state.loss, state.buffer, ok)
