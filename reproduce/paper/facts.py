"""Sizes of the experiments that the text names, read from the configurations of the tiers it shows."""

from collections.abc import Callable, Mapping
from typing import Any

from ..configs.testbed import ALL_PROBLEMS
from ..registry import REGISTRY
from .words import number

_FACTS: Mapping[str, tuple[str, Callable[[Any], float | None]]] = {
    "thm1-tau": ("thm1", lambda c: max(c.taus)),
    "thm1-replicas": ("thm1", lambda c: c.num_replicas),
    "thm2-problems": ("thm2", lambda c: c.num_problems * len(c.taus) * len(c.num_actions)),
    "thm2-searches": ("thm2", lambda c: c.num_starts),
    "thm3-kinds": ("thm3", lambda c: len(c.bnns)),
    "thm4-smallest": ("thm4", lambda c: min(c.index_dims)),
    "thm4-largest": ("thm4", lambda c: max(c.index_dims)),
    "thm4-epinets": ("thm4", lambda c: c.num_seeds),
    "fig05-problems": ("fig05", lambda c: len(c.problems)),
    "fig05-agents": ("fig05", lambda c: len({variant.agent for variant in c.variants})),
    "fig05-particles": ("fig05", lambda c: max(dict(v.changes).get("num_particles", 1) for v in c.variants)),
    "fig09-problems": ("fig09", lambda c: len(c.problems)),
}


def facts(tiers: Mapping[str, str | None]) -> dict[str, str]:
    """Return the sizes by name, as text.

    Args:
        tiers: the tier at which each artifact is shown; of one that is not shown, the size at its full tier is given.
    """
    found = {"testbed-problems": number(len(ALL_PROBLEMS))}
    for name, (artifact, size) in _FACTS.items():
        own = REGISTRY[artifact]
        config = own.at_tier(tiers[artifact] or list(own.tiers)[-1])
        value = size(config)
        # Without a size in the configuration, the whole data set is used.
        found[name] = "all" if value is None else number(value)
    return found
