"""The Pitman-Yor head on real CIFAR-10: exact on all networks, sampled where features are stored, beside ensembles.

Everything is chosen on 2000 test images and judged on the other 8000.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import ArrayLike, Float, Int, PRNGKeyArray

from epinet_eqx import Draws, named_keys
from epinet_eqx.data import stored_base
from epinet_eqx.losses import Batch
from epinet_eqx.pitman_yor import PitmanYor, attach, logits_log_losses

from ..configs.cifar_head import CifarHead, CifarHeadPart, Halves
from ..record import Row
from .banked import block_rows
from .cifar_bank import NUM_IMAGES, about, batch_of, network_parameters, particles_of, rows_of
from .cifar_bank import groups as groups
from .scoring import TAU, StoredParticles, best_place, choose_temperature, losses_of, mean_losses, values_at


class Parts(NamedTuple):
    """Images to choose on, and images that are judged."""

    tuning: Batch
    test: Batch


class Halved:
    """One split of the test images, the same for all networks; consecutive images of a part are pairs."""

    def __init__(self, halves: Halves, *, key: PRNGKeyArray):
        """Initialize with the sizes, and the key of the order."""
        self.halves = halves
        order = np.asarray(jr.permutation(key, NUM_IMAGES))[: halves.limit]
        unit = 2 * halves.blocks
        judged = (len(order) - halves.num_tuning) // unit * unit
        self.tuning, self.test = order[: halves.num_tuning], order[halves.num_tuning :][:judged]

    def parts(self, data: Batch) -> Parts:
        """Return both parts of the images."""
        return Parts(*(jax.tree.map(lambda leaf, own=own: leaf[own], data) for own in (self.tuning, self.test)))

    def rows(self, losses: dict[str, Any], counts: Sequence[float], *, exact: bool, **told: Any) -> list[Row]:
        """Return one row for each number of indices and block."""
        return list(block_rows(losses, counts, fold=0, blocks=self.halves.blocks, exact=exact, **told))


def log_softmax(logits: Float[ArrayLike, "*batch classes"]) -> Float[np.ndarray, "*batch classes"]:
    """Return log-probabilities, in double precision."""
    wide = np.asarray(logits, np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def log_loss(
    logits: Float[ArrayLike, "batch classes"], y: Int[ArrayLike, " batch"], temperature: float
) -> Float[np.ndarray, " batch"]:
    """Return the log-loss of each label, in double precision."""
    log_p = log_softmax(np.asarray(logits, np.float64) / temperature)
    return -np.take_along_axis(log_p, np.asarray(y)[:, None], axis=1)[:, 0]


def best_marginal(data: Batch, temperatures: Sequence[float]) -> float:
    """Return the temperature with the lowest marginal loss of stored logits."""
    losses = [log_loss(data.x["logits"], data.y, temperature).mean() for temperature in temperatures]
    return temperatures[int(np.argmin(losses))]


def _exact(study: CifarHead, halved: Halved, network: str, key: PRNGKeyArray) -> list[Row]:
    """Return the exact head on every network: at several shares, and over the number of labels at the first one."""
    rows = []
    for name in (name for depth, _ in study.networks.sizes for name in study.networks.names(depth)):
        parts = halved.parts(batch_of(name))
        temperature = best_marginal(parts.tuning, study.halves.temperatures)
        own = log_loss(parts.test.x["logits"], parts.test.y, temperature)[None]
        taus = study.taus if name in study.networks.bases else (1, TAU)
        for alpha in study.alphas:
            for tau in taus if alpha == study.curve_alpha else (TAU,):
                found = logits_log_losses(
                    parts.test.x["logits"], parts.test.y, alpha=alpha, temperature=temperature, tau=tau
                )
                named = {"error": found.error, "marginal": found.marginal, "joint": found.joint}
                losses = {kind: np.asarray(each.values)[None] for kind, each in named.items() if each is not None}
                told = {"alpha": alpha, "tau": tau, "tuned": True, "temperature": temperature}
                told = {**about(name, "exact head"), **told}
                rows += halved.rows({**losses, "base_marginal": own}, (1,), exact=True, **told)
    return rows


def _ensembles(study: CifarHead, halved: Halved, network: str, key: PRNGKeyArray) -> list[Row]:
    """Return deep ensembles of the first networks, as they are and at the temperature that was chosen."""
    rows = []
    depth, _ = study.networks.sizes[0]
    for size in study.ensemble_sizes:
        enn, draws = StoredParticles(size), Draws.all(StoredParticles(size).index)
        parts = halved.parts(particles_of(study.networks.names(depth)[:size]))
        best = choose_temperature(enn, [parts.tuning], draws, study.halves.temperatures)
        found = losses_of(enn, [parts.test], draws, temperatures=(1.0, best), taus=study.taus)
        told = {"agent": "ensemble", "network": f"first_{size}", "size": size}
        told["parameters"] = size * network_parameters(depth)
        for place, temperature in enumerate((1.0, best)):
            for tau in study.taus:
                own = {"tau": tau, "tuned": place == 1, "temperature": temperature}
                rows += halved.rows(values_at(found, place, tau), (size,), exact=True, **told, **own)
    return rows


def field_head(data: Batch, alpha: float, length_scale: float, *, key: PRNGKeyArray) -> PitmanYor:
    """Return the sampled head on stored outputs, at temperature 1."""
    return attach(stored_base, data.x, alpha=jnp.asarray(alpha), length_scale=jnp.asarray(length_scale), key=key)


def _chosen(
    study: CifarHead, enn: PitmanYor, tuning: Batch, exact: float, sets: Sequence[Draws]
) -> tuple[float, float]:
    """Return share and temperature of the sampled head: the lowest joint loss, a mean over several sets of indices.

    Only what leaves the marginal loss within the allowance of the base's counts; if nothing does, the lowest marginal
    loss decides.
    """
    limit = (1 + study.allowance) * log_loss(tuning.x["logits"], tuning.y, exact).mean()
    tried = []
    for alpha in study.sampled_alphas:
        for temperature in (exact * stretch for stretch in study.stretches):
            own = enn.with_parameters(alpha=alpha, temperature=temperature)
            found = [mean_losses(own, [tuning], draws, (1.0,)) for draws in sets]
            tried.append((alpha, temperature, *np.mean(found, axis=0)[:, 0]))
    _, _, marginal, joint = zip(*tried, strict=True)
    return tried[best_place(marginal, joint, limit)][:2]


def _sampled(study: CifarHead, halved: Halved, network: str, key: PRNGKeyArray) -> list[Row]:
    """Return the sampled head over M, at the exact head's temperature and at the one that suits so many indices."""
    rows = []
    field_key, tuning_key, test_key = named_keys(key, "field", "tuning", "test")
    parts = halved.parts(batch_of(network))
    exact = best_marginal(parts.tuning, study.halves.temperatures)
    own = log_loss(parts.test.x["logits"], parts.test.y, exact)[None]
    enn = field_head(parts.tuning, study.sampled_alphas[0], study.length_scale, key=field_key)
    counts = study.sample_counts
    sets = [Draws.sample(enn.index, counts[-1], key=own_key) for own_key in jr.split(tuning_key, study.num_sets)]
    draws = Draws.sample(enn.index, counts[-1], key=test_key)
    alpha, chosen = _chosen(study, enn, parts.tuning, exact, sets)
    for tuned, temperature in ((False, exact), (True, chosen)):
        judged = enn.with_parameters(alpha=alpha, temperature=temperature)
        losses = values_at(losses_of(judged, [parts.test], draws, counts=counts), 0)
        losses["base_marginal"] = np.broadcast_to(own, losses["marginal"].shape)
        told = {"alpha": alpha, "tau": TAU, "tuned": tuned, "temperature": temperature}
        rows += halved.rows(losses, counts, exact=False, **about(network, "sampled head"), **told)
    return rows


_PARTS: dict[str, Callable[[CifarHead, Halved, str, PRNGKeyArray], list[Row]]] = {
    "exact": _exact,
    "ensembles": _ensembles,
    "sampled": _sampled,
}


def run(configs: Sequence[CifarHeadPart], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return the rows of parts of the study."""
    split_key, own_key = named_keys(key, "split", "own")
    return rows_of(configs, _PARTS, Halved(configs[0].study.halves, key=split_key), key=own_key)
