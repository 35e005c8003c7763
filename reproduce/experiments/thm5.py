r"""Theorem 5 (ours): the Pitman-Yor head keeps its base's marginals, and its labels at one input follow an urn.

For a base prediction $w$ and independent positive $\alpha$-stable $S_c$, the prediction
$p_c \propto w_c^{1/\alpha} S_c$ has mean $w$, and labels drawn from one $p$ follow the Pitman-Yor urn. Each closed form
is computed by two routes that share no code: quadrature over the two Gaussian variables of the noise; Lamperti's
density of $(S_1 / S_2)^\alpha$, which settles two classes by an integral over one variable; enumeration of all
partitions of the labels into clusters. Then labels are drawn from the ENN, coherent over inputs as it is, and their
counts are compared with the closed forms by exact binomial tests, which are valid at any sample size. Heads that are
wrong by a little must be rejected by the same tests.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy import stats

from epinet_eqx import named_keys, pitman_yor
from epinet_eqx.networks import FunctionNetwork

from ..artifacts.thm5 import UrnIdentities, UrnSamples
from ..record import Row

# Predictions of the base at four inputs, from nearly certain to level.
_PREDICTIONS = ((0.9, 0.07, 0.03), (0.6, 0.3, 0.1), (0.4, 0.35, 0.25), (1 / 3, 1 / 3, 1 / 3))
_NUM_LABELS = 5
_BATCH = 2000
_OFF = 1.1


def _repeat_prob(w: float, n: int, alpha: float) -> float:
    """Return the probability that n labels are all of a class of probability w, by the library."""
    return math.exp(pitman_yor.repeat_log_probs(jnp.asarray(math.log(w)), jnp.asarray(alpha), n)[n].item())


def two_labels(w: tuple[float, ...], alpha: float) -> np.ndarray:
    """Return the table of two labels by its closed form."""
    probs = np.asarray(w)
    return (1 - alpha) * np.diag(probs) + alpha * np.outer(probs, probs)


def lamperti(alpha: float, first: float, powers: int) -> np.ndarray:
    r"""Return $E\, p^k (1 - p)^{n - k}$ for two classes, k from 0 to n, by an integral over $\log (S_1 / S_2)^\alpha$.

    That variable has the density $\sin(\pi\alpha) / (2 \pi \alpha (\cosh v + \cos \pi\alpha))$; the trapezoidal rule
    converges exponentially.

    Args:
        alpha: below 1, where the density degenerates.
        first: probability of the first class under the base.
        powers: n.
    """
    step = alpha / 40
    v = np.arange(-45.0, 45.0, step)
    density = math.sin(math.pi * alpha) / (2 * math.pi * alpha * (np.cosh(v) + math.cos(math.pi * alpha)))
    logit = (v + math.log(first / (1 - first))) / alpha
    log_p, log_q = -np.logaddexp(0, -logit), -np.logaddexp(0, logit)
    k = np.arange(powers + 1)[:, None]
    return step * np.exp(k * log_p + (powers - k) * log_q) @ density


def laplace_transform(alpha: float, t: np.ndarray, num_points: int) -> np.ndarray:
    """Return the Laplace transform of Kanter's noise by quadrature over its two Gaussian variables."""
    grid, step = np.linspace(-9, 9, num_points, retstep=True)
    weights = step * np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    with jax.enable_x64(True):
        g1, g2 = jnp.meshgrid(jnp.asarray(grid), jnp.asarray(grid), indexing="ij")
        noise = np.asarray(jax.jit(pitman_yor.log_stable)(jnp.asarray(alpha), g1, g2))
    # Beyond 700 the inner exponential overflows, and the outer one is 0.
    return np.array([weights @ np.exp(-np.exp(np.minimum(noise + math.log(s), 700.0))) @ weights for s in t])


def partitions(items: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """Yield all ways to split items into clusters."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for smaller in partitions(rest):
        yield [(first,), *smaller]
        for number, block in enumerate(smaller):
            yield [*smaller[:number], (first, *block), *smaller[number + 1 :]]


def partition_prob(labels: tuple[int, ...], w: tuple[float, ...], alpha: float) -> float:
    """Return the probability of labels in this order, as a sum over all partitions whose clusters have one label."""
    total = 0.0
    for blocks in partitions(tuple(range(len(labels)))):
        if any(len({labels[i] for i in block}) > 1 for block in blocks):
            continue
        term = alpha ** (len(blocks) - 1) * math.factorial(len(blocks) - 1) / math.factorial(len(labels) - 1)
        for block in blocks:
            term *= w[labels[block[0]]] * math.prod(m - alpha for m in range(1, len(block)))
        total += term
    return total


_counts_log_probs = jax.jit(jax.vmap(pitman_yor.counts_log_prob, in_axes=(None, 0, None, None)), static_argnums=3)


def _urn(w: tuple[float, ...], counts: np.ndarray, alpha: float) -> np.ndarray:
    """Return the library's probabilities of labels that occur so many times, in double precision."""
    most = int(counts.sum(axis=1).max())
    with jax.enable_x64(True):
        logits = jnp.log(jnp.asarray(w))
        return np.exp(np.asarray(_counts_log_probs(logits, jnp.asarray(counts), jnp.asarray(alpha), most)))


def _multisets(num_classes: int, n: int) -> np.ndarray:
    """Return all ways in which n labels can be counted."""
    return np.array([c for c in itertools.product(range(n + 1), repeat=num_classes) if sum(c) == n])


def _differences(config: UrnIdentities, alpha: float) -> Iterator[tuple[str, float]]:
    """Yield each identity with the largest difference between its two sides."""
    t = np.array([0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0])
    yield "noise", np.max(np.abs(laplace_transform(alpha, t, config.num_points) - np.exp(-(t**alpha))))
    firsts = (0.02, 0.3, 0.5, 0.9)
    yield "marginal", max(abs(lamperti(alpha, w, 1)[1] - w) for w in firsts)
    n = config.num_labels
    tallies = np.stack([np.arange(n + 1), n - np.arange(n + 1)], axis=1)
    yield (
        "urn, quadrature",
        max(np.max(np.abs(_urn((w, 1 - w), tallies, alpha) - lamperti(alpha, w, n))) for w in firsts),
    )
    pairs = np.array([np.bincount(pair, minlength=3) for pair in itertools.product(range(3), repeat=2)])
    yield (
        "two labels",
        max(np.max(np.abs(_urn(w, pairs, alpha) - two_labels(w, alpha).reshape(-1))) for w in _PREDICTIONS),
    )
    w = _PREDICTIONS[1]
    multisets = _multisets(3, config.max_labels)
    found = _urn(w, multisets, alpha)
    listed = [partition_prob(tuple(np.repeat(np.arange(3), counts).tolist()), w, alpha) for counts in multisets]
    yield "urn, partitions", np.max(np.abs(found - np.array(listed)))
    orders = [math.factorial(config.max_labels) / math.prod(map(math.factorial, counts)) for counts in multisets]
    yield "sum to one", abs(float(found @ np.array(orders)) - 1)
    fewer = _multisets(3, config.max_labels - 1)
    longer = sum(_urn(w, fewer + np.eye(3, dtype=int)[c], alpha) for c in range(3))
    yield "one more label", np.max(np.abs(longer - _urn(w, fewer, alpha)))


def _identities(config: UrnIdentities) -> list[Row]:
    """Return the differences, and the tables and densities that are drawn."""
    rows: list[Row] = [
        {"kind": "identity", "quantity": quantity, "alpha": alpha, "difference": difference}
        for alpha in config.alphas
        for quantity, difference in _differences(config, alpha)
    ]
    level = (0.5, 0.5)
    for alpha in config.table_alphas:
        pairs = np.array([[2, 0], [1, 1], [1, 1], [0, 2]])
        for (y1, y2), value in zip(itertools.product("RD", repeat=2), _urn(level, pairs, alpha), strict=True):
            rows.append({"kind": "table", "alpha": alpha, "y1": y1, "y2": y2, "probability": value})
    for alpha in config.alphas:
        p = np.linspace(0.005, 0.995, 199)
        v = alpha * np.log(p / (1 - p))
        density = math.sin(math.pi * alpha) / (2 * math.pi * alpha * (np.cosh(v) + math.cos(math.pi * alpha)))
        for x, value in zip(p, density * alpha / (p * (1 - p)), strict=True):
            rows.append({"kind": "density", "alpha": alpha, "p": x, "density": value})
    return rows


Noise = Callable[[Array, Array], Array]
"""Maps alpha and a Gaussian variable per class to what is added to the scaled logits."""


WRONG: dict[str, Noise] = {
    "alpha off": lambda alpha, g: pitman_yor.log_stable_quantile(_OFF * alpha, g),
    "too wide": lambda alpha, g: pitman_yor.log_stable_quantile(alpha, _OFF * g),
    "shared noise": lambda alpha, g: pitman_yor.log_stable_quantile(alpha, g[..., :1]),
}
"""Noise of wrong heads: each is right but for one thing."""


def make_enn(alpha: float, *, key: PRNGKeyArray) -> tuple[pitman_yor.PitmanYor, Float[Array, "inputs classes"]]:
    """Return the ENN by the library's own call, and inputs that are their own log-probabilities."""
    x = jnp.log(jnp.asarray(_PREDICTIONS))
    return pitman_yor.attach(FunctionNetwork(lambda x: (x, x)), x, alpha=alpha, length_scale=1.0, key=key), x


@eqx.filter_jit
def _draw(
    enn: pitman_yor.PitmanYor,
    x: Float[Array, "inputs classes"],
    wrong: str,
    num_batches: int,
    *,
    key: PRNGKeyArray,
) -> Int[Array, "inputs cells"]:
    """Return how often the first label, the first two, and all labels of one class occurred; an index per draw."""
    embeddings = jax.vmap(enn.embed)(x)
    num_classes = x.shape[1]

    def outputs(zs: Float[Array, "samples index"]) -> Float[Array, "inputs samples classes"]:
        if not wrong:
            return jax.vmap(lambda embedding: enn.heads(embedding, zs))(embeddings)
        gaussians = jnp.einsum("mcf,if->imc", zs.reshape(zs.shape[0], num_classes, -1), embeddings.field)
        alpha = embeddings.alpha[0]
        return embeddings.logits[:, None, :] / alpha + WRONG[wrong](alpha, gaussians)

    def batch(number: Int[Array, ""]) -> Int[Array, "inputs cells"]:
        index_key, label_key = named_keys(jr.fold_in(key, number), "indices", "labels")
        logits = outputs(enn.index.sample_many(_BATCH, key=index_key))
        labels = jr.categorical(label_key, logits[:, :, None, :], shape=(*logits.shape[:2], _NUM_LABELS))
        seen = jax.nn.one_hot(labels, num_classes, dtype=bool)
        first = jnp.sum(seen[:, :, 0], axis=1)
        pairs = jnp.sum(seen[:, :, 0, :, None] & seen[:, :, 1, None, :], axis=1).reshape(x.shape[0], -1)
        same = jnp.sum(jnp.all(seen, axis=2), axis=1)
        return jnp.concatenate([first, pairs, same], axis=1)

    return jnp.sum(jax.lax.map(batch, jnp.arange(num_batches)), axis=0)


def _cells(w: tuple[float, ...], alpha: float) -> list[tuple[str, str, float]]:
    """Return statistic, cell and probability of everything that is counted at one input."""
    table = two_labels(w, alpha)
    pairs = zip(itertools.product("ABC", repeat=2), table.reshape(-1), strict=True)
    return [
        *(("marginal", label, prob) for label, prob in zip("ABC", w, strict=True)),
        *(("two labels", "".join(labels), prob) for labels, prob in pairs),
        *(
            (f"{_NUM_LABELS} labels", _NUM_LABELS * label, _repeat_prob(prob, _NUM_LABELS, alpha))
            for label, prob in zip("ABC", w, strict=True)
        ),
    ]


def _samples(config: UrnSamples, *, key: PRNGKeyArray) -> list[Row]:
    """Return counts and p-values of the right head and of wrong ones, and of a table of another alpha."""
    field_key, draw_key = named_keys(key, "field", "draws")
    enn, x = make_enn(config.alpha, key=field_key)
    num_batches = -(-config.num_samples // _BATCH)
    total = num_batches * _BATCH
    rows: list[Row] = []

    def compare(head: str, counts: np.ndarray, alpha: float) -> None:
        for number, w in enumerate(_PREDICTIONS):
            for (statistic, cell, prob), count in zip(_cells(w, alpha), counts[number].tolist(), strict=True):
                common: dict[str, Any] = {"kind": "test", "head": head, "alpha": config.alpha, "input": number}
                p = float(stats.binomtest(count, total, min(1.0, prob)).pvalue)
                own: dict[str, Any] = {
                    "statistic": statistic,
                    "cell": cell,
                    "num_samples": total,
                    "share": count / total,
                }
                rows.append({**common, **own, "probability": prob, "p": p})

    for wrong in ("", *WRONG):
        counts = np.asarray(_draw(enn, x, wrong, num_batches, key=draw_key))
        compare(wrong or "right", counts, config.alpha)
        if not wrong:
            compare("table of alpha + 0.05", counts, config.alpha + 0.05)
    return rows


def run(config: UrnIdentities | UrnSamples, *, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of one run."""
    return _identities(config) if isinstance(config, UrnIdentities) else _samples(config, key=key)
