"""Real ImageNet from the bank: base networks, epinets, ensembles and other heads on stored outputs of seven networks.

Five folds: an epinet, a temperature, and every other choice is made on four of them and judged on the fifth, so every
image is a test image once. Dyads are random pairs of images of one fold. Epinets are fitted on validation images, since
the training set is not at hand; what fitting on the bank's training-like images gives is a row of its own.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.data import PackedBank, stored_base
from epinet_eqx.epinet import Epinet, attach
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.pitman_yor import logits_log_losses
from epinet_eqx.training import fit

from ..banks import open_shipped

Row = dict[str, Any]

# Outputs that are held at a time, in numbers.
_CHUNK = 5 * 10**6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """The paper's epinet on ImageNet; fields are what ablations change."""

    index_dim: int = 30
    hidden: tuple[int, ...] = (50,)
    prior_scale: float = 1.0
    l2: float = 1e-4
    label_smoothing: float = 0.1
    num_index_samples: int = 5
    num_steps: int = 300
    batch_size: int = 100
    learning_rate: float = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class BankStudy:
    """What is run.

    Attributes:
        networks: the base networks.
        ensembles: the members of each ensemble.
        recipe: the epinet.
        num_folds: number of folds.
        num_tuning: images of the four folds that are kept from training, to choose temperatures on.
        num_tuning_indices: how many indices, at least, a temperature is chosen with.
        temperatures: candidates for what all outputs are divided by.
        counts: numbers of indices M.
        alphas: candidates for the aleatoric share of the Pitman-Yor head.
        dropout_rates: candidates for dropout on features.
        num_masks: number of masks of dropout.
        limit: number of images, for a quick look; None for all.
    """

    networks: tuple[str, ...]
    ensembles: tuple[tuple[str, ...], ...]
    recipe: Recipe = Recipe()
    num_folds: int = 5
    num_tuning: int = 400
    num_tuning_indices: int = 100
    temperatures: tuple[float, ...] = (0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2)
    counts: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000)
    alphas: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    dropout_rates: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3)
    num_masks: int = 100
    limit: int | None = None


def _log_means(log_p: Float[np.ndarray, "samples ..."], counts: tuple[int, ...]) -> Float[np.ndarray, "counts ..."]:
    """Return the logarithms of the means over the first `counts` samples."""
    sums = np.logaddexp.accumulate(log_p, axis=0)
    return np.stack([sums[count - 1] - np.log(count) for count in counts])


class Scores(NamedTuple):
    """Log-probabilities of the labels at each temperature and index, and whether the average prediction is wrong."""

    own: Float[np.ndarray, "temperatures samples images"]
    wrong: Float[np.ndarray, "temperatures images"]

    def at(self, place: int, counts: tuple[int, ...], tau: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Return the marginal loss of each image and the exact dyadic loss of each pair, for each number of indices."""
        own = self.own[place].astype(np.float64)
        first, second = own[:, 0::2, None], own[:, 1::2, None]
        # How many of the tau draws fall on the first image of a pair, and the probability of each number.
        falls = np.arange(tau + 1)
        weights = np.array([math.comb(tau, k) / 2**tau for k in falls])
        joint = _log_means(first * falls + second * (tau - falls), counts)
        return -_log_means(own, counts), -joint @ weights

    def best(self) -> int:
        """Return the place of the temperature with the smallest joint loss."""
        last = (self.own.shape[1],)
        return int(np.argmin([self.at(place, last)[1].mean() for place in range(len(self.own))]))


Outputs = Callable[[Batch], Iterator[Float[Array, "samples batch classes"]]]


@jax.jit
def _scores(
    logits: Float[Array, "samples batch classes"], y: Int[Array, " batch"], temperatures: Float[Array, " temperatures"]
) -> tuple[Array, Array]:
    """Return log-probabilities of the labels, and the sum of the predictions, at each temperature."""

    def at(temperature: Array) -> tuple[Array, Array]:
        log_p = jax.nn.log_softmax(logits / temperature)
        own = jnp.take_along_axis(log_p, y[None, :, None], axis=2)[:, :, 0]
        return own, jnp.sum(jnp.exp(log_p), axis=0)

    return jax.lax.map(at, temperatures)


def score(outputs: Outputs, data: Batch, temperatures: Sequence[float], *, at_most: int | None = None) -> Scores:
    """Return the scores of a model whose outputs come in chunks of indices, images in order of their pairs.

    Args:
        outputs: returns the chunks of a batch.
        data: the images.
        temperatures: what outputs are divided by.
        at_most: number of indices after which no further chunk is asked for; None for all.
    """
    own, wrong = [], []
    size = 100
    for start in range(0, len(data.y), size):
        batch = jax.tree.map(lambda leaf, start=start: leaf[start : start + size], data)
        parts: list[tuple[Array, Array]] = []
        for logits in outputs(batch):
            parts.append(_scores(logits, batch.y, jnp.asarray(temperatures)))
            if at_most is not None and sum(part[0].shape[1] for part in parts) >= at_most:
                break
        own.append(np.concatenate([np.asarray(part[0]) for part in parts], axis=1))
        probs = sum(np.asarray(part[1]) for part in parts)
        wrong.append((np.argmax(probs, axis=-1) != np.asarray(batch.y)).astype(np.float32))
    return Scores(np.concatenate(own, axis=2), np.concatenate(wrong, axis=1))


@eqx.filter_jit
def _heads(enn: Epinet, x: Any, zs: Array) -> Float[Array, "samples batch classes"]:
    """Return the outputs of an epinet at several indices."""
    return jax.vmap(lambda one: enn.heads(enn.embed(one), zs), out_axes=1)(x)


def epinet_outputs(enn: Epinet, zs: Float[Array, "samples index"]) -> Outputs:
    """Return the outputs of an epinet at given indices."""

    def run(batch: Batch) -> Iterator[Array]:
        chunk = max(1, min(len(zs), _CHUNK // (len(batch.y) * batch.x["logits"].shape[-1])))
        for start in range(0, len(zs), chunk):
            yield _heads(enn, batch.x, zs[start : start + chunk])

    return run


def particle_outputs(batch: Batch) -> Iterator[Array]:
    """Yield the outputs of networks that are stored side by side: particles with equal weights."""
    yield jnp.moveaxis(batch.x["logits"], 1, 0) if batch.x["logits"].ndim == 3 else batch.x["logits"][None]


@jax.jit
def _masked(features: Array, weight: Array, bias: Array, masks: Array) -> Float[Array, "samples batch classes"]:
    """Return the outputs of a linear layer on masked features."""
    return jax.lax.map(lambda mask: (features * mask[None]) @ weight.T + bias[None], masks)


def dropout_outputs(bank: PackedBank, rate: float, noise: Float[Array, "masks features"]) -> Outputs:
    """Return the outputs with dropout on the features where uniform noise is below the rate, for all images alike."""
    assert bank.linear is not None
    weight, bias = jnp.asarray(bank.linear.weight), jnp.asarray(bank.linear.bias)
    masks = (noise >= rate).astype(jnp.float32) / (1 - rate)

    def run(batch: Batch) -> Iterator[Array]:
        yield _masked(batch.x["features"], weight, bias, masks)

    return run


def train(data: Batch, recipe: Recipe, *, key: PRNGKeyArray) -> Epinet:
    """Return an epinet that is trained on stored outputs."""
    build_key, fit_key = named_keys(key, "build", "fit")
    enn = attach(
        stored_base,
        out_size=data.x["logits"].shape[-1],
        index_dim=recipe.index_dim,
        hidden=recipe.hidden,
        prior_scale=recipe.prior_scale,
        example=jax.tree.map(lambda leaf: leaf[0], data.x),
        key=build_key,
    )
    schedule = optax.cosine_decay_schedule(recipe.learning_rate, recipe.num_steps)
    trained = fit(
        enn,
        data,
        CrossEntropy(l2=recipe.l2, label_smoothing=recipe.label_smoothing),
        num_steps=recipe.num_steps,
        batch_size=min(recipe.batch_size, len(data.y)),
        optimizer=optax.sgd(schedule, momentum=0.9, nesterov=True),
        num_index_samples=recipe.num_index_samples,
        progress=False,
        key=fit_key,
    ).enn
    assert isinstance(trained, Epinet)
    return trained


def count_added(recipe: Recipe, feature_dim: int, num_classes: int) -> int:
    """Return the parameters of the learnable epinet and its matched prior."""
    sizes = (feature_dim + recipe.index_dim, *recipe.hidden, recipe.index_dim * num_classes)
    return 2 * sum((first + 1) * second for first, second in itertools.pairwise(sizes))


class Lab:
    """The bank's networks, and the folds that all of them share."""

    def __init__(self, study: BankStudy, *, key: PRNGKeyArray):
        """Initialize; banks are read when they are asked for."""
        self.study = study
        self.key = key
        self._banks: dict[str, PackedBank] = {}
        total = self.bank(study.networks[0]).splits["val"]
        (order_key,) = named_keys(key, "order")
        order = np.asarray(jr.permutation(order_key, total))[: study.limit]
        size = len(order) // study.num_folds // 2 * 2
        self.folds = [order[place * size : (place + 1) * size] for place in range(study.num_folds)]

    def bank(self, name: str) -> PackedBank:
        """Return the outputs of a network."""
        if name not in self._banks:
            self._banks[name] = open_shipped("imagenet", name)
        return self._banks[name]

    def key_of(self, name: str, fold: int) -> PRNGKeyArray:
        """Return the key of a part at a fold."""
        (key,) = named_keys(self.key, name)
        return jr.fold_in(key, fold)

    def parts(self, data: Batch, fold: int) -> tuple[Batch, Batch, Batch]:
        """Return training, tuning and test images."""
        rest = np.concatenate([own for place, own in enumerate(self.folds) if place != fold])
        tuning = min(self.study.num_tuning, len(rest) // 4 // 2 * 2)
        chosen = (rest[tuning:], rest[:tuning], self.folds[fold])
        training, tuned, test = (jax.tree.map(lambda leaf, own=own: leaf[own], data) for own in chosen)
        return training, tuned, test


def _rows(found: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], counts: Sequence[int], **about: Any) -> list[Row]:
    """Return a row for each number of indices, from marginal, wrong and joint of the folds."""
    marginal, joint = (np.concatenate([fold[place] for fold in found], axis=-1) for place in (0, 2))
    wrong = np.concatenate([fold[1] for fold in found])

    def mean(name: str, values: np.ndarray) -> Row:
        return {name: float(values.mean()), f"{name}_error": float(values.std(ddof=1) / np.sqrt(len(values)))}

    return [
        {
            **about,
            "num_samples": count,
            **mean("error", wrong),
            **mean("marginal", marginal[place]),
            **mean("joint", joint[place]),
        }
        for place, count in enumerate(counts)
    ]


def _judge(
    lab: Lab, data: Batch, make: Callable[[int, Batch, Batch], Outputs], counts: tuple[int, ...], **about: Any
) -> list[Row]:
    """Return rows at temperature 1 and at the one that was chosen on other folds.

    Args:
        lab: the folds.
        data: all images.
        make: returns the outputs of what is judged at a fold, from the fold's number, training and tuning images.
        counts: numbers of indices.
        about: other columns of the rows.
    """
    temperatures = lab.study.temperatures
    plain, tuned, used = [], [], []
    for fold in range(lab.study.num_folds):
        training, tuning, test = lab.parts(data, fold)
        outputs = make(fold, training, tuning)
        place = score(outputs, tuning, temperatures, at_most=lab.study.num_tuning_indices).best()
        found = score(outputs, test, (1.0, temperatures[place]))
        used.append(temperatures[place])
        for rows, at in ((plain, 0), (tuned, 1)):
            marginal, joint = found.at(at, counts)
            rows.append((marginal, found.wrong[at], joint))
    return [
        *_rows(plain, counts, **about, tuned=False, temperature=1.0),
        *_rows(tuned, counts, **about, tuned=True, temperature=float(np.mean(used))),
    ]


def base_rows(lab: Lab, name: str) -> list[Row]:
    """Return the rows of a network as it is."""
    data = lab.bank(name).as_batch("val")
    return _judge(lab, data, lambda *_: particle_outputs, (1,), agent="resnet", network=name, members=1)


def ensemble_rows(lab: Lab, names: Sequence[str]) -> list[Row]:
    """Return the rows of an ensemble of networks of mixed architecture."""
    batches = [lab.bank(name).as_batch("val") for name in names]
    x = {"logits": jnp.stack([batch.x["logits"] for batch in batches], axis=1)}
    data = Batch(x, batches[0].y, batches[0].i)
    count = (len(names),)
    return _judge(
        lab, data, lambda *_: particle_outputs, count, agent="ensemble", network="+".join(names), members=len(names)
    )


def epinet_rows(lab: Lab, name: str, recipe: Recipe, *, fitted_on: str = "val", agent: str = "epinet") -> list[Row]:
    """Return the rows of epinets on a network; `fitted_on` is the split that they are trained on."""
    bank = lab.bank(name)
    data = bank.as_batch("val")

    def make(fold: int, training: Batch, tuning: Batch) -> Outputs:
        own = training if fitted_on == "val" else bank.as_batch(fitted_on)
        if recipe.num_steps:
            enn = train(own, recipe, key=lab.key_of(f"{name} epinet", fold))
        else:
            enn = attach(
                stored_base,
                out_size=bank.num_classes,
                index_dim=recipe.index_dim,
                hidden=recipe.hidden,
                prior_scale=recipe.prior_scale,
                example=bank.example(),
                key=lab.key_of(f"{name} epinet", fold),
            )
        zs = jr.normal(lab.key_of(f"{name} indices", fold), (lab.study.counts[-1], recipe.index_dim))
        return epinet_outputs(enn, zs)

    added = count_added(recipe, bank.feature_dim, bank.num_classes)
    about = {"agent": agent, "network": name, "members": 1, "added": added, "fitted_on": fitted_on}
    return _judge(lab, data, make, lab.study.counts, **about)


def dropout_rows(lab: Lab, name: str) -> list[Row]:
    """Return the rows of dropout on the features, its rate chosen by the joint loss on other folds."""
    bank = lab.bank(name)
    data = bank.as_batch("val")

    def make(fold: int, training: Batch, tuning: Batch) -> Outputs:
        noise = jr.uniform(lab.key_of(f"{name} masks", fold), (lab.study.num_masks, bank.feature_dim))
        tried = [dropout_outputs(bank, rate, noise) for rate in lab.study.dropout_rates]
        last = (lab.study.num_masks,)
        losses = [score(outputs, tuning, (1.0,)).at(0, last)[1].mean() for outputs in tried]
        return tried[int(np.argmin(losses))]

    count = (lab.study.num_masks,)
    return _judge(lab, data, make, count, agent="dropout on features", network=name, members=1)


def pitman_yor_rows(lab: Lab, name: str) -> list[Row]:
    """Return the rows of the Pitman-Yor head in closed form, its share and temperature chosen on other folds."""
    data = lab.bank(name).as_batch("val")
    found, used = [], []
    for fold in range(lab.study.num_folds):
        training, tuning, test = lab.parts(data, fold)
        fitting = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), training, tuning)

        def losses(batch: Batch, alpha: float, temperature: float) -> Any:
            return logits_log_losses(batch.x["logits"], batch.y, alpha=alpha, temperature=temperature)

        settings = [(alpha, t) for alpha in lab.study.alphas for t in lab.study.temperatures if t >= 0.7]
        best = min(settings, key=lambda setting: float(jnp.mean(losses(fitting, *setting).joint.values)))
        own = losses(test, *best)
        found.append(
            (np.asarray(own.marginal.values)[None], np.asarray(own.error.values), np.asarray(own.joint.values)[None])
        )
        used.append(best)
    alpha, temperature = (float(np.mean([setting[place] for setting in used])) for place in (0, 1))
    about = {"agent": "pitman-yor", "network": name, "members": 1, "alpha": alpha, "temperature": temperature}
    return [{**row, "num_samples": float("inf")} for row in _rows(found, (1,), **about, tuned=True)]


def rows(study: BankStudy, *, key: PRNGKeyArray, report: Callable[[list[Row]], None] = lambda rows: None) -> list[Row]:
    """Return all rows; `report` gets those of each part as soon as they are there."""
    lab = Lab(study, key=key)
    found: list[Row] = []

    def add(part: list[Row]) -> None:
        found.extend(part)
        report(part)

    for name in study.networks:
        add(base_rows(lab, name))
        add(pitman_yor_rows(lab, name))
    for names in study.ensembles:
        add(ensemble_rows(lab, names))
    first, *others = study.networks
    add(epinet_rows(lab, first, study.recipe))
    add(epinet_rows(lab, first, study.recipe, fitted_on="train"))
    add(epinet_rows(lab, first, dataclasses.replace(study.recipe, num_steps=0), agent="untrained epinet"))
    for name in others:
        add(epinet_rows(lab, name, study.recipe))
    for name in study.networks:
        add(dropout_rows(lab, name))
    return found


ABLATIONS: Mapping[str, tuple[Recipe, ...]] = {
    "index dimension": tuple(Recipe(index_dim=value) for value in (1, 3, 10, 30)),
    "hidden layers": tuple(Recipe(hidden=value) for value in ((), (50,), (50, 50))),
    "prior scale": tuple(Recipe(prior_scale=value) for value in (0.0, 0.3, 1.0, 3.0)),
    "L2": tuple(Recipe(l2=value) for value in (0.0, 1e-5, 1e-4, 1e-3)),
    "index samples": tuple(Recipe(num_index_samples=value) for value in (1, 5, 20)),
    "label smoothing": tuple(Recipe(label_smoothing=value) for value in (0.0, 0.1, 0.2)),
}
"""What the ablations change, one factor at a time; the temperature is an eighth row, of every table of this module."""

STUDY = BankStudy(
    networks=(
        "resnet50",
        "efficientnet_lite0",
        "efficientnet_lite1",
        "efficientnet_lite2",
        "mobilenet_v2",
        "mobilenet_v2_keras",
        "squeezenet1_1",
    ),
    ensembles=(
        ("resnet50", "efficientnet_lite0"),
        ("resnet50", "efficientnet_lite0", "mobilenet_v2"),
        ("resnet50", "efficientnet_lite0", "mobilenet_v2", "efficientnet_lite2"),
        ("resnet50", "efficientnet_lite0", "mobilenet_v2", "efficientnet_lite2", "mobilenet_v2_keras"),
        (
            "resnet50",
            "efficientnet_lite0",
            "mobilenet_v2",
            "efficientnet_lite2",
            "mobilenet_v2_keras",
            "efficientnet_lite1",
        ),
        (
            "resnet50",
            "efficientnet_lite0",
            "mobilenet_v2",
            "efficientnet_lite2",
            "mobilenet_v2_keras",
            "efficientnet_lite1",
            "squeezenet1_1",
        ),
    ),
)
