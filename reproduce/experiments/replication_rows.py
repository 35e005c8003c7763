"""Rows of results of the replication: losses at a temperature chosen on held-out images, and beside the ensemble."""

import functools as ft
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from epinet_eqx import AbstractENN, Draws
from epinet_eqx.losses import Batch
from epinet_eqx.metrics import LossGrid

from ..configs.replication import Study
from .replication_lab import Lab
from .replication_scores import BATCH, taken
from .scoring import StoredParticles, best_place, losses_of, summary, values_at

Rows = list[dict[str, Any]]


class Agent(NamedTuple):
    """Something to judge.

    Attributes:
        enn: the ENN.
        draws: its indices.
        x: its input for all test images.
        known: what its rows say of it.
        scales: scales of a mirrored epinet to choose from; none for other agents.
        allowance: by which share its marginal loss may exceed the limit where its temperature is chosen.
        tag: what its losses on the tuning part are remembered by; nothing is remembered of an agent without.
    """

    enn: Any
    draws: Draws
    x: Any
    known: dict[str, Any]
    scales: tuple[float, ...] = ()
    allowance: float = 0.0
    tag: Any = None


Seen = Sequence[tuple[str, Agent, Callable[[str], Any]]]
"""Agents by name, each with what it sees of other images."""


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
        return taken(x, positions), self.lab.labels("test")[positions]

    def agent(self, enn: AbstractENN, x: Any, count: int, /, **known: Any) -> Agent:
        """Return an ENN as an agent, at so many indices."""
        return sampled(enn, self.indices(enn, count), x, **known)

    def particles(self, networks: tuple[str, ...], /, **known: Any) -> Agent:
        """Return an ensemble of networks as an agent, exact."""
        return stored(self.lab.particles(networks, "test"), **known)

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
        _, _, marginal, joint = zip(*found, strict=True)
        best = found[best_place(marginal, joint, limit * (1 + agent.allowance))]
        return Chosen(at_scale(agent, best[0]), *best[1:])

    def _at_temperatures(self, agent: Agent, scale: float) -> list[tuple[float, float, float]]:
        """Return each temperature, with the marginal and the joint loss of an agent on the tuning part."""
        study = self.study
        first = self.first(at_scale(agent, scale), study.num_samples)
        temperatures = study.cold_temperatures if agent.scales else study.temperatures
        found = self.losses(first, self.lab.split.tuning, temperatures, (study.tau,))
        marginal, joint = found.marginal[:, -1].mean(axis=-1), found.joint[study.tau][:, -1].mean(axis=-1)
        return list(zip(temperatures, marginal.tolist(), joint.tolist(), strict=True))

    def first(self, agent: Agent, count: int) -> Agent:
        """Return the agent at its first indices only."""
        if agent.draws.exact or agent.draws.num_samples <= count:
            return agent
        return agent._replace(draws=_given(agent.enn, agent.draws.take(count, 0)))

    def losses(
        self,
        agent: Agent,
        positions: Int[np.ndarray, " images"],
        temperatures: tuple[float, ...],
        taus: tuple[int, ...],
        counts: tuple[int, ...] | None = None,
    ) -> LossGrid:
        """Return the losses of an agent on some test images, by default at all its indices."""
        batch = Batch(*self.at(agent.x, positions), positions)
        return losses_of(agent.enn, [batch], agent.draws, temperatures=temperatures, taus=taus, counts=counts)

    @ft.cached_property
    def reference(self) -> dict[tuple[str, int], Float[np.ndarray, " pairs"]]:
        """The joint loss of each evaluation pair by the largest ensemble, for each kind of temperature and tau."""
        agent = self.particles(self.study.bank.networks[0].names("test"))
        temperatures = (1.0, self.choose(agent).temperature)
        found = self.losses(agent, self.lab.split.evaluation, temperatures, self.study.taus)
        return {
            (kind, tau): values_at(found, number, tau)["joint"][-1]
            for number, kind in enumerate(("untuned", "tuned"))
            for tau in self.study.taus
        }

    @ft.cache  # noqa: B019 (a bench lives as long as its run)
    def base(self, network: str) -> tuple[Chosen, Float[np.ndarray, " images"]]:
        """Return the temperature that suits a network, and its log-loss of each evaluation image there."""
        agent = self.particles((network,))
        chosen = self.choose(agent)
        found = self.losses(agent, self.lab.split.evaluation, (chosen.temperature,), (1,))
        return chosen, values_at(found, 0, 1)["marginal"][-1]

    def at_best(self, network: str, agents: Seen) -> Iterator[tuple[str, Agent, float, Callable[[str], Any]]]:
        """Yield agents at the scale that suits each, with its temperature and what it sees of other images.

        Args:
            network: the base, whose marginal loss must not be exceeded where these are chosen.
            agents: the agents; an ensemble has no base.
        """
        limit = self.base(network)[0].marginal
        for name, agent, see in agents:
            chosen = self.choose(agent, np.inf if name == "ensemble" else limit)
            yield name, chosen.agent, chosen.temperature, see

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
        counts = (agent.draws.num_samples,) if agent.draws.exact else counts
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
                        "exact": found.exact,
                        "error": float(values["error"][place].mean()),
                        **_named("marginal", values["marginal"][place]),
                        **_named("joint", values["joint"][place]),
                        **_named("difference", values["joint"][place] - self.reference[kind, tau]),
                        **self._beside_base(base, values["marginal"][place]),
                        "tuning_marginal": chosen.marginal,
                        "tuning_joint": chosen.joint,
                        "tuning_limit": float(limit),
                    }
                    for tau, values in ((tau, values_at(found, 0, tau)) for tau in taus)
                ]
        return rows

    def _beside_base(self, base: str | None, marginal: Float[np.ndarray, " images"]) -> dict[str, float]:
        """Return by how much the marginal loss exceeds that of the base, paired by image."""
        return {} if base is None else _named("excess", marginal - self.base(base)[1])


def _given(enn: AbstractENN, zs: Any) -> Draws:
    """Return given indices as draws."""
    return Draws.given(enn.index, zs, batch_size=BATCH)


def sampled(enn: AbstractENN, zs: Any, x: Any, /, **known: Any) -> Agent:
    """Return an ENN at given indices as an agent."""
    return Agent(enn, _given(enn, zs), x, known)


def stored(x: Float[np.ndarray, "images particles classes"], /, **known: Any) -> Agent:
    """Return outputs that are there already as an agent: those of particles, all equally likely."""
    enn = StoredParticles(x.shape[1])
    return Agent(enn, Draws.all(enn.index, batch_size=BATCH), x, known)


def at_scale(agent: Agent, scale: float) -> Agent:
    """Return a mirrored epinet with its odd part at another scale, and other agents as they are."""
    if not agent.scales:
        return agent
    where = lambda enn: enn.scale.content  # noqa: E731
    return agent._replace(enn=eqx.tree_at(where, agent.enn, jnp.asarray(scale, dtype=jnp.float32)))


def scale_of(agent: Agent) -> float:
    """Return the scale of a mirrored epinet; 1 for other agents."""
    return float(agent.enn.scale.content) if agent.scales else 1.0


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
