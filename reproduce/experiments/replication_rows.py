"""Rows of results of the replication: losses at a temperature chosen on held-out images, and beside the ensemble."""

import functools as ft
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from epinet_eqx import AbstractENN

from ..configs.replication import Study
from .replication_lab import Lab
from .replication_scores import Losses, Outputs, Stored, losses, summary

Rows = list[dict[str, Any]]


class Agent(NamedTuple):
    """Something to judge.

    Attributes:
        outputs: `Outputs` or `Stored`.
        x: its input for all test images.
        exact: whether the indices are all there are.
        known: what its rows say of it.
        scales: scales of a mirrored epinet to choose from; none for other agents.
        allowance: by which share its marginal loss may exceed the limit where its temperature is chosen.
        tag: what its losses on the tuning part are remembered by; nothing is remembered of an agent without.
    """

    outputs: Any
    x: Any
    exact: bool
    known: dict[str, Any]
    scales: tuple[float, ...] = ()
    allowance: float = 0.0
    tag: Any = None


class Chosen(NamedTuple):
    """An agent at the scale, and with the temperature, that were chosen by these losses."""

    agent: Agent
    temperature: float
    marginal: float
    joint: float


class Bench:
    """The judge: one split, one set of indices, one reference for all agents of a study."""

    def __init__(self, lab: Lab, study: Study):
        """Initialize with the stored features and the study."""
        self.lab = lab
        self.study = study
        self._tried: dict[Any, list[tuple[float, float, float, float]]] = {}

    def indices(self, enn: AbstractENN, count: int) -> Any:
        """Return the first `count` indices, the same for all agents with the same kind of index."""
        return enn.index.sample_many(count, key=self.lab.key_of("indices"))

    def at(self, x: Any, positions: Int[np.ndarray, " images"]) -> tuple[Any, np.ndarray]:
        """Return inputs and labels of some test images."""
        return jax.tree.map(lambda leaf: leaf[positions], x), self.lab.labels("test")[positions]

    def agent(self, enn: AbstractENN, x: Any, count: int, /, **known: Any) -> Agent:
        """Return an ENN as an agent, at so many indices."""
        return Agent(Outputs(enn, self.indices(enn, count)), x, False, known)

    def particles(self, networks: tuple[str, ...], /, **known: Any) -> Agent:
        """Return an ensemble of networks as an agent, exact."""
        return Agent(Stored(), self.lab.particles(networks, "test"), True, known)

    def choose(self, agent: Agent, limit: float = np.inf) -> Chosen:
        """Return the temperature, and the scale, with the smallest joint loss on the tuning part.

        Args:
            agent: the agent.
            limit: only what leaves the marginal loss on the tuning part at or below this counts, apart from what the
                agent is allowed; if there is nothing, what has the smallest marginal loss.
        """
        found = self._tried.get(agent.tag) or [
            (scale, *losses) for scale in agent.scales or (1.0,) for losses in self._at_temperatures(agent, scale)
        ]
        if agent.tag is not None:
            self._tried[agent.tag] = found
        allowed = [losses for losses in found if losses[2] <= limit * (1 + agent.allowance)]
        # By the joint loss, which comes last, or by the marginal one.
        best = min(allowed, key=lambda losses: losses[3]) if allowed else min(found, key=lambda losses: losses[2])
        return Chosen(at_scale(agent, best[0]), *best[1:])

    def _at_temperatures(self, agent: Agent, scale: float) -> list[tuple[float, float, float]]:
        """Return each temperature, with the marginal and the joint loss of an agent on the tuning part."""
        study = self.study
        first = self.first(at_scale(agent, scale), study.num_samples)
        temperatures = study.cold_temperatures if agent.scales else study.temperatures
        found = self.losses(first, self.lab.split.tuning, temperatures, (study.tau,), first_counts(first))
        marginal, joint = found.marginal[:, -1].mean(axis=-1), found.joint[study.tau][:, -1].mean(axis=-1)
        return list(zip(temperatures, marginal.tolist(), joint.tolist(), strict=True))

    def first(self, agent: Agent, count: int) -> Agent:
        """Return the agent at its first indices only."""
        if agent.exact or agent.outputs.zs.shape[0] <= count:
            return agent
        return agent._replace(outputs=eqx.tree_at(lambda o: o.zs, agent.outputs, agent.outputs.zs[:count]))

    def losses(
        self,
        agent: Agent,
        positions: Int[np.ndarray, " images"],
        temperatures: tuple[float, ...],
        taus: tuple[int, ...],
        counts: tuple[int, ...],
    ) -> Losses:
        """Return the losses of an agent on some test images."""
        x, y = self.at(agent.x, positions)
        return losses(agent.outputs, x, y, temperatures=temperatures, taus=taus, counts=counts)

    @ft.cached_property
    def reference(self) -> dict[tuple[str, int], Float[np.ndarray, " pairs"]]:
        """The joint loss of each evaluation pair by the largest ensemble, for each kind of temperature and tau."""
        agent = self.particles(self.study.bank.networks[0].names("test"))
        temperatures = (1.0, self.choose(agent).temperature)
        found = self.losses(agent, self.lab.split.evaluation, temperatures, self.study.taus, first_counts(agent))
        return {
            (kind, tau): found.joint[tau][number, -1]
            for number, kind in enumerate(("untuned", "tuned"))
            for tau in self.study.taus
        }

    @ft.cache  # noqa: B019 (a bench lives as long as its run)
    def base(self, network: str) -> tuple[Chosen, Float[np.ndarray, " images"]]:
        """Return the temperature that suits a network, and its log-loss of each evaluation image there."""
        agent = self.particles((network,))
        chosen = self.choose(agent)
        found = self.losses(agent, self.lab.split.evaluation, (chosen.temperature,), (1,), (1,))
        return chosen, found.marginal[0, -1]

    def rows(
        self,
        agent: Agent,
        *,
        taus: tuple[int, ...],
        counts: tuple[int, ...],
        base: str | None = None,
        kinds: tuple[str, ...] = ("untuned", "tuned"),
    ) -> Rows:
        """Return one row per kind of temperature, tau and M, all on the evaluation part.

        Args:
            agent: the agent.
            taus: numbers of labels.
            counts: numbers of indices M, of an agent that is not exact.
            base: the network whose marginal loss, at the temperature that suits it, must not be exceeded on the tuning
                part.
            kinds: "untuned" for temperature 1, "tuned" for the chosen one.
        """
        limit = np.inf if base is None else self.base(base)[0].marginal
        chosen = self.choose(agent, limit)
        counts = first_counts(agent) if agent.exact else counts
        rows = []
        for kind in kinds:
            own, temperature = (agent, 1.0) if kind == "untuned" else (chosen.agent, chosen.temperature)
            found = self.losses(self.first(own, counts[-1]), self.lab.split.evaluation, (temperature,), taus, counts)
            for place, count in enumerate(counts):
                rows += [
                    {
                        **agent.known,
                        "kind": kind,
                        "temperature": temperature,
                        "scale": scale_of(own),
                        "tau": tau,
                        "num_samples": count,
                        "exact": agent.exact,
                        "error": float(found.wrong[0, place].mean()),
                        **_named("marginal", found.marginal[0, place]),
                        **_named("joint", found.joint[tau][0, place]),
                        **_named("difference", found.joint[tau][0, place] - self.reference[kind, tau]),
                        **self._beside_base(base, found.marginal[0, place]),
                        "tuning_marginal": chosen.marginal,
                        "tuning_joint": chosen.joint,
                        "tuning_limit": float(limit),
                    }
                    for tau in taus
                ]
        return rows

    def _beside_base(self, base: str | None, marginal: Float[np.ndarray, " images"]) -> dict[str, float]:
        """Return by how much the marginal loss exceeds that of the base, paired by image."""
        return {} if base is None else _named("excess", marginal - self.base(base)[1])


def at_scale(agent: Agent, scale: float) -> Agent:
    """Return a mirrored epinet with its odd part at another scale, and other agents as they are."""
    if not agent.scales:
        return agent
    where = lambda outputs: outputs.enn.scale.content  # noqa: E731
    return agent._replace(outputs=eqx.tree_at(where, agent.outputs, jnp.asarray(scale, dtype=jnp.float32)))


def scale_of(agent: Agent) -> float:
    """Return the scale of a mirrored epinet; 1 for other agents."""
    return float(agent.outputs.enn.scale.content) if agent.scales else 1.0


def first_counts(agent: Agent) -> tuple[int, ...]:
    """Return the number of all indices of an agent."""
    if not agent.exact:
        return (agent.outputs.zs.shape[0],)
    return (agent.x.shape[1],)


def _named(name: str, values: Float[np.ndarray, " groups"]) -> dict[str, float]:
    """Return a mean and its standard error by their names."""
    mean, error = summary(values)
    return {name: mean, f"{name}_error": error}


def averaged(found: list[Rows], names: tuple[str, ...]) -> Rows:
    """Return the rows of several members of a kind as one: means, and the standard deviation over members.

    The standard error over test pairs stays the mean of theirs: what another test set would change.

    Args:
        found: the rows of each member, in the same order.
        names: the columns to average.
    """
    rows = []
    for own in zip(*found, strict=True):
        row = dict(own[0])
        for name in names:
            values = [member[name] for member in own]
            row[name] = float(np.mean(values))
            if not name.endswith("_error"):
                row[f"{name}_spread"] = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        rows.append({**row, "members": len(own)})
    return rows
