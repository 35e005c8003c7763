"""The replication on real CIFAR-10: networks, ensembles, epinets, controls and what else is asked of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from epinet_eqx.combinators import Mirrored
from epinet_eqx.epinet import Epinet

from ..configs.images import variants
from ..configs.replication import Recipe, StudyPart
from ..inputs import Inputs
from ..record import Row
from .replication_bank import parameters_of
from .replication_controls import Candidates, controls
from .replication_human import human_rows
from .replication_lab import Lab, count_parameters
from .replication_rows import Agent, Bench, Rows, averaged
from .replication_scores import outputs_of
from .replication_shift import dyad_rows, shift_rows

_AVERAGED = (
    *("temperature", "error", "marginal", "marginal_error", "joint", "joint_error"),
    *("difference", "difference_error", "tuning_marginal", "tuning_joint"),
)


# Images and indices that are enough for a typical deviation.
_TYPICAL = 200


def groups(configs: Mapping[str, StudyPart]) -> list[list[str]]:
    """Return the parts of one base together: they share its epinets, each of which is trained once."""
    found: dict[Any, list[str]] = {}
    for name, config in configs.items():
        found.setdefault((config.study, config.network), []).append(name)
    return list(found.values())


class Session:
    """What the parts of one base share."""

    def __init__(self, bench: Bench, network: str):
        """Initialize with the judge and the base."""
        self.bench = bench
        self.lab = bench.lab
        self.study = bench.study
        self.network = network
        self._epinets: dict[Recipe, Epinet] = {}

    def known(self, network: str) -> dict[str, Any]:
        """Return what rows say of a network."""
        depth = int(network.removeprefix("resnet").split("_")[0])
        return {"network": network, "depth": depth, "size": 1}

    def epinet(self, recipe: Recipe) -> Epinet:
        """Return the epinet of a recipe, trained when it is first asked for."""
        # What is chosen after training makes no other epinet.
        trained = replace(recipe, mirrored=False, allowance=0.0)
        if trained not in self._epinets:
            self._epinets[trained] = self.lab.epinet(self.network, trained)
        return self._epinets[trained]

    def agent(self, recipe: Recipe, count: int, /, **known: Any) -> Agent:
        """Return the epinet of a recipe as an agent, at so many indices."""
        enn = self.epinet(recipe)
        base = parameters_of(self.lab.inputs, self.network)
        costs = {"parameters": base + count_parameters(enn), "particle_parameters": self.particle_parameters}
        x = self.lab.inputs_of(self.network, "test", recipe)
        known = {**self.known(self.network), **costs, **known}
        if not recipe.mirrored:
            agent = self.bench.agent(enn, x, count, **known)
            return agent._replace(allowance=recipe.allowance, tag=replace(recipe, allowance=0.0))
        unit = 1 / max(self._deviation(enn, recipe), 1e-6)
        scales = tuple(unit * deviation for deviation in self.study.deviations)
        agent = self.bench.agent(Mirrored(enn, unit), x, count, **known)
        return agent._replace(scales=scales, allowance=recipe.allowance, tag=replace(recipe, allowance=0.0))

    def _deviation(self, enn: Epinet, recipe: Recipe) -> float:
        """Return the standard deviation of an epinet's odd part over indices and classes, of a typical image."""
        x, _ = self.bench.at(self.lab.inputs_of(self.network, "test", recipe), self.lab.split.tuning[:_TYPICAL])
        outputs = outputs_of(Mirrored(enn), self.bench.indices(enn, _TYPICAL), jax.tree.map(jnp.asarray, x))
        odd = np.asarray(outputs) - x["logits"][:, None]
        odd = odd - odd.mean(axis=2, keepdims=True)
        return float(np.median(np.sqrt(np.mean(odd**2, axis=(1, 2)))))

    @property
    def particle_parameters(self) -> int:
        """The parameters of one particle of the ensembles."""
        return parameters_of(self.lab.inputs, self.study.bank.networks[0].names("test")[0])


def _networks(session: Session) -> Rows:
    """Return every single network."""
    bench, rows = session.bench, []
    for own in session.study.bank.networks:
        for name in own.names("test"):
            costs = {"parameters": parameters_of(session.lab.inputs, name)}
            agent = bench.particles((name,), agent="network", **session.known(name), **costs)
            rows += bench.rows(agent, taus=session.study.taus, counts=(1,))
    return rows


def _subsets(session: Session, names: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Return random subsets of networks, all different; one if it is all of them."""
    wanted = 1 if size == len(names) else session.study.num_subsets
    if size == 1:
        return [(name,) for name in names]
    found: set[tuple[str, ...]] = set()
    number = 0
    while len(found) < wanted and number < 10 * wanted:
        key = jr.fold_in(session.lab.key_of(f"subsets {names[0]} {size}"), number)
        order: list[int] = np.asarray(jr.permutation(key, len(names))).tolist()
        found.add(tuple(names[place] for place in sorted(order[:size])))
        number += 1
    return sorted(found)


def _ensembles(session: Session) -> Rows:
    """Return deep ensembles of every size, each the mean over random subsets of the networks."""
    rows, study = [], session.study
    for own in (study.bank.networks[0], study.bank.networks[-1]):
        names = own.names("test")
        for size in [size for size in (*study.ensemble_sizes, len(names)) if size <= len(names)]:
            if any(row["depth"] == own.depth and row["size"] == size for row in rows):
                continue
            known = {"agent": "ensemble", "network": "all", "depth": own.depth, "size": size}
            cost = size * parameters_of(session.lab.inputs, names[0])
            costs = {"parameters": cost, "particle_parameters": session.particle_parameters}
            agents = [session.bench.particles(subset, **known, **costs) for subset in _subsets(session, names, size)]
            rows += averaged([session.bench.rows(agent, taus=study.taus, counts=()) for agent in agents], _AVERAGED)
    return rows


def _epinets(session: Session) -> Rows:
    """Return the epinets of every recipe: curves over tau at few and many indices, and over M."""
    study, rows = session.study, []
    for name, recipe in study.recipes:
        agent = session.agent(recipe, study.sample_counts[-1], agent="epinet", recipe=name)
        rows += session.bench.rows(agent, taus=study.taus, counts=study.tau_counts, base=session.network)
        others = tuple(count for count in study.sample_counts if count not in study.tau_counts)
        rows += session.bench.rows(agent, taus=(study.tau,), counts=others, base=session.network, kinds=("tuned",))
    return rows


def _best(session: Session, candidates: Candidates) -> tuple[float, Agent]:
    """Return the candidate with the smallest joint loss on the tuning part, at the temperature that suits each."""
    limit = session.bench.base(session.network)[0].marginal
    scored = [session.bench.choose(agent, limit) for _, agent in candidates]
    # One that keeps the marginal loss goes before one that does not.
    order = [(chosen.marginal > limit, chosen.joint) for chosen in scored]
    return candidates[min(range(len(order)), key=order.__getitem__)]


def _controls(session: Session) -> Rows:
    """Return what an epinet is compared with on the same features."""
    study, rows = session.study, []
    recipe = dict(study.recipes)["cold"]
    crippled = {
        "epinet without prior": replace(recipe, prior_scale=0.0, conv_scale=0.0),
        "epinet without training": replace(recipe, epochs=0),
    }
    others = {name: lambda own=own: [(0.0, session.agent(own, study.num_samples))] for name, own in crippled.items()}
    for name, build in {**others, **controls(session.bench, session.network, recipe)}.items():
        value, agent = _best(session, build())
        known = {"agent": name, **session.known(session.network), "value": value}
        rows += session.bench.rows(
            agent._replace(known=known),
            taus=(1, study.tau),
            counts=(study.num_samples,),
            base=session.network,
        )
    return rows


def _ablation(session: Session) -> Rows:
    """Return one factor at a time from the cold recipe, at the temperature that suits each."""
    study, rows = session.study, []
    recipe = dict(study.recipes)["cold"]
    for factor, value, own in (("none", "cold", recipe), *variants(recipe, study.factors)):
        agent = session.agent(own, study.num_samples, agent="epinet", factor=factor, value=str(value))
        rows += session.bench.rows(agent, taus=(study.tau,), counts=(study.num_samples,), base=session.network)
    return rows


def _pairs_of_agents(session: Session) -> list[tuple[str, Agent, Any]]:
    """Return the base, the largest ensemble and the epinets, with how each sees other images."""
    lab, study = session.lab, session.study
    networks = study.bank.networks[0].names("test")
    found: list[tuple[str, Agent, Any]] = []
    for name, members in (("network", (session.network,)), ("ensemble", networks)):
        found.append((name, session.bench.particles(members), lambda images, m=members: lab.particles(m, images)))
    for name, recipe in study.recipes:
        agent = session.agent(recipe, study.num_samples)
        see = lambda images, recipe=recipe: lab.inputs_of(session.network, images, recipe)  # noqa: E731
        found.append((f"epinet {name}", agent, see))
    return found


_PARTS: dict[str, Callable[[Session], Rows]] = {
    "networks": _networks,
    "ensembles": _ensembles,
    "epinets": _epinets,
    "controls": _controls,
    "ablation": _ablation,
    "dyads": lambda session: dyad_rows(session.bench, session.network, _pairs_of_agents(session)),
    "human": lambda session: human_rows(session.bench, session.network, _pairs_of_agents(session)),
    "shifts": lambda session: shift_rows(session.bench, session.network, _pairs_of_agents(session)),
}


def run(configs: Sequence[StudyPart], *, key: PRNGKeyArray, inputs: Inputs) -> list[list[Row]]:
    """Return the rows of the parts of one base."""
    study = configs[0].study
    session = Session(Bench(Lab(study.bank, study.num_tuning, inputs=inputs, key=key), study), configs[0].network)
    return [[{"part": config.part, **row} for row in _PARTS[config.part](session)] for config in configs]
