"""Joint losses under augmented dyadic sampling (Appendix E), from stored outputs of augmented images."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import AbstractENN, Draws, Tempered, named_keys
from epinet_eqx.baselines import SNGP
from epinet_eqx.data import LinearLayer, PackedBank, stored_base
from epinet_eqx.indices import AbstractIndex
from epinet_eqx.losses import Batch
from epinet_eqx.metrics import joint_log_loss, log_losses
from epinet_eqx.pitman_yor import attach as attach_pitman_yor

from ..banks import AUGMENTED_TEMPERATURES, NUM_AUGMENTED, augmented_anchors, augmented_log_probs
from ..configs.imagenet import NETWORKS, BankPart, Heads
from .banked import Parts, Row, bank_of, block_means, train_epinet
from .imagenet import data_of, epinet_cost
from .imagenet_costs import ensemble_cost, network_cost
from .imagenet_heads import HEADS, choose
from .scoring import TAU, StoredParticles, choose_temperature, draws_of, mean_losses, particles_batch

Pairs = Float[np.ndarray, " pairs"]


class Judge:
    """What all agents of the augmented dyads share: images to fit and to choose on, the pairs, plain and augmented."""

    def __init__(self, config: BankPart, *, key: PRNGKeyArray):
        """Initialize; the images of the pairs are neither fitted nor chosen on."""
        self.bank = config.bank
        self.network = config.networks[0]
        anchors = augmented_anchors()
        order_key, self.key = named_keys(key, "order", "indices")
        others = np.setdiff1d(np.arange(self.own.splits["val"]), anchors)
        others = np.asarray(jr.permutation(order_key, others))
        num_tuning = self.bank.folds.num_tuning
        self.places = (others[num_tuning:], others[:num_tuning], anchors)

    @property
    def own(self) -> PackedBank:
        """The bank of the network that has outputs of augmented images."""
        return bank_of("imagenet", self.network)

    def parts(self, data: Batch) -> Parts:
        """Return images to train on, to choose on, and the anchors of the pairs."""
        return Parts(*(jax.tree.map(lambda leaf, own=own: leaf[own], data) for own in self.places))

    def draws(self, enn: AbstractENN, num_samples: int) -> Draws:
        """Return the indices of an ENN, the same for all of its predictions."""
        return draws_of(enn, num_samples, key=self.key, chunk_size=self.bank.folds.chunk_size)

    def temperature(self, enn: AbstractENN, tuning: Batch, temperatures: Sequence[float] | None = None) -> float:
        """Return the temperature with the best joint loss on plain dyads; candidates are by default Figure 2's."""
        folds = self.bank.folds
        candidates = folds.temperatures if temperatures is None else temperatures
        return choose_temperature(enn, [tuning], self.draws(enn, folds.tuning_samples), candidates)

    def losses(
        self, enn: AbstractENN, plain: Batch, augmented: Batch, num_samples: int | None = None
    ) -> tuple[Pairs, Pairs]:
        """Return the plain and the augmented joint loss of each pair, by default with the most indices."""
        draws = self.draws(enn, self.bank.counts[-1] if num_samples is None else num_samples)
        return (
            np.asarray(log_losses(enn, plain.x, plain.y, draws, tau=TAU).joint.values),
            np.asarray(joint_log_loss(enn, augmented.x, augmented.y, draws, tau=TAU).values),
        )

    def rows(self, found: Sequence[tuple[Pairs, Pairs]], **about: Any) -> list[Row]:
        """Return a row for each block of pairs, of means over several ENNs."""
        plain, augmented = (np.mean([own[place] for own in found], axis=0) for place in (0, 1))
        blocks = 10
        means = zip(block_means(plain, blocks), block_means(augmented, blocks), strict=True)
        return [
            {**about, "block": block, "joint": float(joint), "augmented": float(other)}
            for block, (joint, other) in enumerate(means)
        ]


def _logits(data: Batch) -> Batch:
    """Return the stored logits as those of an ensemble of one."""
    return particles_batch([data])


def _base(judge: Judge) -> list[Row]:
    """Return the rows of the network."""
    enn, parts = StoredParticles(1), judge.parts(_logits(judge.own.as_batch("val")))
    temperature = judge.temperature(enn, parts.tuning)
    found = judge.losses(Tempered(enn, temperature), parts.test, _logits(judge.own.as_batch("augmented")))
    return judge.rows([found], agent="resnet", members=1, temperature=temperature)


def _ensemble(judge: Judge, names: tuple[str, ...]) -> list[Row]:
    """Return the rows of an ensemble, at a temperature for which log-probabilities of augmented labels are stored."""
    enn = StoredParticles(len(names))
    parts = judge.parts(particles_batch([data_of(name) for name in names]))
    temperature = judge.temperature(enn, parts.tuning, AUGMENTED_TEMPERATURES)
    draws = judge.draws(enn, 0)
    tempered = Tempered(enn, temperature)
    plain = np.asarray(log_losses(tempered, parts.test.x, parts.test.y, draws, tau=TAU).joint.values)
    stored = augmented_log_probs()
    log_p = np.stack([stored[name, temperature].reshape(NUM_AUGMENTED, TAU).sum(axis=1) for name in names])
    augmented = -np.logaddexp.reduce(log_p, axis=0) + np.log(len(names))
    return judge.rows([(plain, augmented)], agent="ensemble", members=len(names), temperature=temperature)


def _epinet(judge: Judge, num_seeds: int) -> list[Row]:
    """Return the rows of epinets, means over seeds of their losses."""
    parts, augmented = judge.parts(judge.own.as_batch("val")), judge.own.as_batch("augmented")
    found, temperatures = [], []
    for seed in range(num_seeds):
        enn = train_epinet(parts.training, judge.bank.recipe, key=jr.fold_in(judge.key, seed))
        temperatures.append(judge.temperature(enn, parts.tuning))
        found.append(judge.losses(Tempered(enn, temperatures[-1]), parts.test, augmented))
    return judge.rows(found, agent="epinet", members=1, temperature=float(np.mean(temperatures)))


def _pitman_yor(judge: Judge, alpha: float) -> list[Row]:
    """Return the rows of a Pitman-Yor head whose noise is alike where features are alike."""
    parts, augmented = judge.parts(judge.own.as_batch("val")), judge.own.as_batch("augmented")
    examples = jax.tree.map(lambda leaf: leaf[:400], parts.training.x)
    one, candidates = StoredParticles(1), judge.bank.folds.temperatures
    marginal, _ = mean_losses(one, [_logits(parts.tuning)], judge.draws(one, 1), candidates)
    temperature = candidates[int(np.argmin(marginal))]
    enn = attach_pitman_yor(stored_base, examples, alpha=alpha, temperature=temperature, key=judge.key)
    found = judge.losses(enn, parts.test, augmented)
    return judge.rows([found], agent="pitman-yor", members=1, temperature=temperature)


class _Shifted(AbstractENN):
    """Stored logits plus the output of an ENN that reads the features."""

    enn: AbstractENN
    index: AbstractIndex

    def __init__(self, enn: AbstractENN):
        """Initialize with the ENN."""
        self.enn = enn
        self.index = enn.index

    def embed(self, x: Any) -> tuple[Float[Array, " classes"], Any]:
        """Return the logits, and the embedding of the features."""
        return x["logits"], self.enn.embed(x["features"])

    def heads(self, embedding: tuple[Array, Any], zs: Array) -> Float[Array, "samples classes"]:
        """Return the logits at many indices."""
        logits, inner = embedding
        return logits[None, :] + self.enn.heads(inner, zs)


def _sngp(heads: Heads, linear: LinearLayer, parts: Parts, key: PRNGKeyArray) -> Iterator[AbstractENN]:
    """Yield the posteriors of Figure 6 with their weights drawn: ten draws are more inputs than a pair's covariance."""
    features = jnp.asarray(parts.training.x["features"])
    sngp = SNGP(features.shape[1], len(linear.bias), num_features=heads.random_features, key=key)
    sngp = eqx.tree_at(lambda enn: enn.weight, sngp, replace_fn=jnp.zeros_like)
    sngp = eqx.filter_jit(lambda enn, x: enn.with_gram(enn.gram(x)))(sngp, features)
    for scale in heads.sngp_scales:
        yield _Shifted(sngp.with_scale(scale))


MAKE = {"sngp": _sngp}
"""What makes the candidates of a head where it is another function than for Figure 6."""

BASELINES: Mapping[str, int | None] = {"dropout": 10, "sngp": 10, "het": None}
"""The heads of Figure 6 that can be judged on the features of augmented images, with the paper's numbers of indices."""


def _baseline(judge: Judge, name: str, num_samples: int | None) -> list[Row]:
    """Return the rows of an uncertainty baseline, chosen as for Figure 6."""
    parts, augmented = judge.parts(judge.own.as_batch("val")), judge.own.as_batch("augmented")
    heads, linear = judge.bank.heads, judge.own.linear
    assert linear is not None
    make_key, choose_key = named_keys(judge.key, f"make {name}", f"choose {name}")
    make = MAKE.get(name) or HEADS[name].make
    made = make(heads, linear, parts, make_key)
    enn, temperature, _ = choose(made, parts.tuning, judge.bank.folds, heads.tuning_samples, key=choose_key)
    found = judge.losses(Tempered(enn, temperature), parts.test, augmented, num_samples)
    return judge.rows([found], agent=name, members=1, temperature=temperature)


def run(config: BankPart, *, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of all agents on the augmented dyads, with the parameters of each."""
    (name,) = config.networks
    judge = Judge(config, key=key)
    own = network_cost(name).parameters
    sizes = judge.own.feature_dim, judge.own.num_classes
    parts: Sequence[tuple[list[Row], int]] = (
        (_base(judge), own),
        (_ensemble(judge, NETWORKS), ensemble_cost(NETWORKS).parameters),
        (_epinet(judge, config.bank.num_seeds), epinet_cost(name, config.bank.recipe).parameters),
        (_pitman_yor(judge, config.bank.alphas[1]), own),
        *(
            (_baseline(judge, agent, count), own + HEADS[agent].parameters(config.bank.heads, *sizes))
            for agent, count in BASELINES.items()
        ),
    )
    return [{**row, "parameters": parameters} for rows, parameters in parts for row in rows]
