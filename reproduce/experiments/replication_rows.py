"""Rows of results of the replication: losses at a temperature chosen on held-out images, and beside the ensemble."""

import functools as ft
from typing import Any, NamedTuple

import equinox as eqx
import jax
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
    """

    outputs: Any
    x: Any
    exact: bool
    known: dict[str, Any]


class Chosen(NamedTuple):
    """A temperature, and the losses that it was chosen by."""

    temperature: float
    marginal: float
    joint: float


class Bench:
    """The judge: one split, one set of indices, one reference for all agents of a study."""

    def __init__(self, lab: Lab, study: Study):
        """Initialize with the stored features and the study."""
        self.lab = lab
        self.study = study

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
        """Return the temperature with the smallest joint loss on the tuning part.

        Args:
            agent: the agent.
            limit: only temperatures count whose marginal loss on the tuning part is at most this; if there is none, the
                one with the smallest marginal loss.
        """
        study = self.study
        first = self.first(agent, study.num_samples)
        found = self.losses(first, self.lab.split.tuning, study.temperatures, (study.tau,), first_counts(first))
        marginal, joint = found.marginal[:, -1].mean(axis=-1), found.joint[study.tau][:, -1].mean(axis=-1)
        allowed = marginal <= limit
        best = int(np.argmin(np.where(allowed, joint, np.inf)) if allowed.any() else np.argmin(marginal))
        return Chosen(study.temperatures[best], float(marginal[best]), float(joint[best]))

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
        temperatures = tuple(1.0 if kind == "untuned" else chosen.temperature for kind in kinds)
        found = self.losses(self.first(agent, counts[-1]), self.lab.split.evaluation, temperatures, taus, counts)
        rows = []
        for number, kind in enumerate(kinds):
            for place, count in enumerate(counts):
                rows += [
                    {
                        **agent.known,
                        "kind": kind,
                        "temperature": temperatures[number],
                        "tau": tau,
                        "num_samples": count,
                        "exact": agent.exact,
                        "error": float(found.wrong[number, place].mean()),
                        **_named("marginal", found.marginal[number, place]),
                        **_named("joint", found.joint[tau][number, place]),
                        **_named("difference", found.joint[tau][number, place] - self.reference[kind, tau]),
                        **self._beside_base(base, found.marginal[number, place]),
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
