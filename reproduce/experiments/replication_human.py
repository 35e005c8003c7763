"""Labels as people give them: joint loss when each draw has its own annotator (CIFAR-10H)."""

from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Float

from epinet_eqx.metrics import auroc

from ..errors import ReproduceError
from ..stats import rank_correlation
from .replication_rows import Agent, Bench, Rows, Seen
from .replication_scores import BATCH, decompose, log_mean, log_probs, taken
from .scoring import summary

# How often labels are drawn for each pair.
_NUM_DRAWS = 8
# Images are ambiguous if fewer than this share of the annotators agree on one class.
_AGREEMENT = 0.9


def read_human(folder: Path) -> Float[np.ndarray, "images classes"]:
    """Return the share of annotators that gave each test image each label."""
    path = folder / "human_labels.npz"
    try:
        with np.load(path, allow_pickle=False) as content:
            counts = content["cifar10h_counts"].astype(np.float64)
    except (OSError, KeyError, ValueError) as error:
        raise ReproduceError(
            f"`--data-dir` must hold human_labels.npz with the entry `cifar10h_counts`, for the parts about people; "
            f"{path} does not ({type(error).__name__})."
        ) from None
    return counts / counts.sum(axis=1, keepdims=True)


def draw_labels(
    shares: np.ndarray, tau: int, rng: np.random.Generator
) -> Float[np.ndarray, "pairs draws anchors classes"]:
    """Return how often each label occurs at each anchor, in several draws of `tau` labels from each pair."""
    num_pairs, num_classes = len(shares) // 2, shares.shape[1]
    pairs = shares.reshape(num_pairs, 2, num_classes)
    first = rng.binomial(tau, 0.5, size=(num_pairs, _NUM_DRAWS))
    occupied = np.stack([first, tau - first], axis=-1)
    return rng.multinomial(occupied, pairs[:, None]).astype(np.float32)


def _rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's correlation; 0 with what is constant, and so tells nothing."""
    return 0.0 if np.ptp(a) == 0 or np.ptp(b) == 0 else rank_correlation(a, b)


def human_rows(bench: Bench, network: str, agents: Seen) -> Rows:
    """Return losses under labels of people and under the one true label, on clear and on ambiguous pairs.

    Args:
        bench: the judge.
        network: the base.
        agents: the agents.
    """
    lab, study = bench.lab, bench.study
    positions = lab.split.evaluation
    folder = lab.inputs.require("data_dir", expected="CIFAR-10 with human_labels.npz")
    shares = read_human(folder)[positions]
    labels = lab.labels("test")[positions]
    rng = np.random.default_rng(np.asarray(jr.key_data(lab.key_of("annotators"))))
    truth = np.eye(shares.shape[1])[labels]
    drawn = {"people": draw_labels(shares, study.tau, rng), "true label": draw_labels(truth, study.tau, rng)}
    entropy = -np.sum(np.where(shares > 0, shares * np.log(np.maximum(shares, 1e-12)), 0.0), axis=1)
    clear = shares.max(axis=1) >= _AGREEMENT
    clear_pairs = clear.reshape(-1, 2).all(axis=1)
    subsets = {"all": np.ones_like(clear_pairs), "clear": clear_pairs, "ambiguous": ~clear_pairs}
    rows = []
    for name, agent, temperature, _ in bench.at_best(network, agents):
        found = _losses(agent, taken(agent.x, positions), temperature, drawn, shares)
        wrong = found["predicted"] != labels
        right, mistaken = (found["epistemic"][clear & which] for which in (~wrong, wrong))
        # Without any mistake, or with nothing else, there is nothing to detect.
        detection = auroc(right, mistaken) if len(right) and len(mistaken) else np.nan
        told: dict[str, Any] = {
            "temperature": temperature,
            "tau": study.tau,
            "aleatoric_correlation": _rank_correlation(found["aleatoric"], entropy),
            "epistemic_correlation": _rank_correlation(found["epistemic"], entropy),
            "auroc_errors": float(detection),
        }
        for subset, chosen in subsets.items():
            for source in drawn:
                joint, error = summary(found[source][chosen])
                marginal = float(found["human"][np.repeat(chosen, 2)].mean())
                rows.append(
                    {
                        "agent": name,
                        "network": network,
                        "subset": subset,
                        "labels": source,
                        "num_pairs": int(chosen.sum()),
                        "joint": joint,
                        "joint_error": error,
                        "human_marginal": marginal,
                        **told,
                    }
                )
    return rows


def _losses(
    agent: Agent, x: Any, temperature: float, drawn: dict[str, np.ndarray], shares: np.ndarray
) -> dict[str, np.ndarray]:
    """Return joint losses of the draws, losses against the annotators, and the parts of the entropy, in batches."""
    found: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(shares), BATCH):
        log_p = log_probs(agent.enn, agent.draws, taken(x, slice(start, start + BATCH)), temperature)
        mixture, aleatoric, epistemic = decompose(log_p)
        pairs = log_p.reshape(len(log_p) // 2, 2, *log_p.shape[1:])
        at = slice(start // 2, start // 2 + len(pairs))
        new = {
            source: -log_mean(np.einsum("pamc,pdac->pdm", pairs, counts[at], optimize=True), axis=-1).mean(axis=1)
            for source, counts in drawn.items()
        }
        new |= {"aleatoric": aleatoric, "epistemic": epistemic, "predicted": np.argmax(mixture, axis=-1)}
        new["human"] = -np.sum(shares[start : start + len(log_p)] * mixture, axis=1)
        for name, values in new.items():
            found.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in found.items()}
