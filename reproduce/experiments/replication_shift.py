"""Augmented dyadic sampling, and detection of rotated and corrupted images."""

import numpy as np
from jaxtyping import Float

from epinet_eqx.metrics import auroc

from .replication_images import shifts
from .replication_rows import Bench, Rows, Seen
from .replication_scores import decompose, log_mean, log_probs, taken
from .scoring import TAU, summary, values_at


def dyad_rows(bench: Bench, network: str, agents: Seen) -> Rows:
    """Return the joint loss of draws from pairs, plain and augmented, of pairs without a tuning image.

    Args:
        bench: the judge.
        network: the base.
        agents: the agents.
    """
    lab, study = bench.lab, bench.study
    in_evaluation = np.isin(np.arange(study.bank.num_dyads), lab.split.evaluation).reshape(-1, 2)
    pairs = np.flatnonzero(in_evaluation.all(axis=1))
    images = np.stack([2 * pairs, 2 * pairs + 1], axis=1).reshape(-1)
    draws = (TAU * pairs[:, None] + np.arange(TAU)[None, :]).reshape(-1)
    rows = []
    for name, agent, temperature, see in bench.at_best(network, agents):
        plain = values_at(bench.losses(agent, images, (temperature,), (TAU,)), 0)["joint"][0]
        labels = lab.labels("dyads")[draws]
        log_p = log_probs(agent.enn, agent.draws, taken(see("dyads"), draws), temperature)
        own = log_p[np.arange(len(labels)), :, labels].reshape(len(pairs), TAU, -1)
        drawn = -log_mean(own.sum(axis=1), axis=-1)
        rows += [
            {
                "agent": name,
                "network": network,
                "temperature": temperature,
                "tau": TAU,
                "num_samples": agent.draws.num_samples,
                "num_pairs": len(pairs),
                "sampling": sampling,
                **dict(zip(("joint", "joint_error"), summary(values), strict=True)),
            }
            for sampling, values in (("dyadic", plain), ("augmented dyadic", drawn))
        ]
    return rows


def shift_rows(bench: Bench, network: str, agents: Seen) -> Rows:
    """Return how well the uncertainty of agents tells shifted images from the same images as they are.

    Args:
        bench: the judge.
        network: the base.
        agents: the agents.
    """
    lab, study = bench.lab, bench.study
    count = study.bank.num_shifted
    clean = lab.split.evaluation[lab.split.evaluation < count]
    rows = []
    for name, agent, temperature, see in bench.at_best(network, agents):
        inside = _scores(log_probs(agent.enn, agent.draws, taken(agent.x, clean), temperature))
        shifted = see("shifted")
        for number, (kind, strength) in enumerate(shifts()):
            positions = number * count + clean
            log_p = log_probs(agent.enn, agent.draws, taken(shifted, positions), temperature)
            outside = _scores(log_p)
            labels = lab.labels("shifted")[positions]
            wrong = np.argmax(decompose(log_p)[0], axis=-1) != labels
            rows.append(
                {
                    "agent": name,
                    "network": network,
                    "shift": kind,
                    "strength": strength,
                    "num_images": len(clean),
                    "error": float(wrong.mean()),
                    **{f"auroc_{score}": float(auroc(inside[score], outside[score])) for score in inside},
                }
            )
    return rows


def _scores(log_p: Float[np.ndarray, "images samples classes"]) -> dict[str, Float[np.ndarray, " images"]]:
    """Return the scores by which images are told apart: the epistemic part of the entropy, and all of it."""
    _, aleatoric, epistemic = decompose(log_p)
    return {"epistemic": epistemic, "total": aleatoric + epistemic}
