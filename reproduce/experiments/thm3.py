"""Theorem 3: every BNN can be expressed as an ENN; there is an ENN that no BNN on the same base network expresses."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64, PRNGKeyArray

from epinet_eqx import Draws, named_keys, predict

from ..artifacts.thm3 import BNNAgreement, CounterExample
from ..record import Row
from .bnns import BNN, BNNS
from .generators import numpy_generator
from .perceptron import IN_DIM, Outputs
from .thm3_counterexample import counterexample
from .two_sample import combine, energy_test, flip_test, projection_test

WIDTH_ERROR = 1.3
"""How much too wide the wrong ENN is."""


def _softmax(outputs: Outputs) -> Outputs:
    """Return the probabilities of the classes."""
    shifted = np.exp(outputs - np.max(outputs, axis=-1, keepdims=True))
    return shifted / np.sum(shifted, axis=-1, keepdims=True)


def cell_probs(outputs: Outputs) -> Float64[np.ndarray, "samples cells"]:
    """Return the probabilities of all combinations of labels given each sampled function."""
    probs = _softmax(outputs)
    cells = probs[:, 0]
    for t in range(1, probs.shape[1]):
        cells = (cells[:, :, None] * probs[:, t, None, :]).reshape(len(probs), -1)
    return cells


def redraw(outputs: Outputs, num_blocks: int) -> Outputs:
    """Return outputs as if the index had been drawn again for each input: the marginals stay, the joint does not.

    The samples come in blocks; input `t` of a block gets its outputs from `t` blocks further on.
    """
    blocks = outputs.reshape(num_blocks, -1, *outputs.shape[1:])
    shifted = [np.roll(blocks[:, :, t], -t, axis=0) for t in range(outputs.shape[1])]
    return np.stack(shifted, axis=2).reshape(outputs.shape)


def _tests(config: BNNAgreement, direct: Outputs, outputs: Outputs, enn: str, *, key: PRNGKeyArray) -> list[Row]:
    """Return the p-values of all replicates, and of all together."""
    generator = numpy_generator(key)
    size = config.num_tested
    pairs = [
        (direct[start : start + size].reshape(size, -1), outputs[start : start + size].reshape(size, -1))
        for start in range(0, size * config.num_replicates, size)
    ]
    p_values = {
        "energy": [energy_test(*pair, num_permutations=config.num_permutations, generator=generator) for pair in pairs],
        "projections": [
            projection_test(*pair, num_projections=config.num_projections, generator=generator) for pair in pairs
        ],
    }
    rows: list[Row] = []
    for test, values in p_values.items():
        common = {"enn": enn, "test": test}
        rows += [{"kind": "replicate", **common, "replicate": r, "p": value} for r, value in enumerate(values)]
        rows.append({"kind": "combined", **common, "p": combine(values)})
    return rows


def _table(
    bnn: BNN,
    x: Any,
    direct: Outputs,
    outputs: Outputs,
    config: BNNAgreement,
    *,
    test_key: PRNGKeyArray,
    key: PRNGKeyArray,
) -> list[Row]:
    """Return the joint probabilities of all combinations of labels by both ways, with errors, and a test of all."""
    index = bnn.enn.index
    enumerated = index.support() is not None
    draws = Draws.all(index) if enumerated else Draws.sample(index, config.num_samples, key=key, chunk_size=1000)
    log_table = predict.joint_log_probs(bnn.enn, x, draws)
    table = np.exp(np.asarray(log_table, np.float64))
    root = np.sqrt(config.num_samples)
    if bnn.atoms is None:
        cells = cell_probs(direct)
        expected, expected_error = np.mean(cells, axis=0), np.std(cells, axis=0, ddof=1) / root
    else:
        expected = bnn.atoms.probs @ cell_probs(bnn.atoms.outputs)
        expected_error = np.zeros_like(expected)
    error = np.zeros_like(expected) if enumerated else np.std(cell_probs(outputs), axis=0, ddof=1) / root
    product = cell_probs(np.log(np.mean(_softmax(outputs), axis=0, keepdims=True)))[0]
    rows: list[Row] = [
        {
            "kind": "cell",
            "labels": " ".join(str(label) for label in np.unravel_index(cell, table.shape)),
            "bnn_log_prob": np.log(expected[cell]).item(),
            "bnn_error": (expected_error[cell] / expected[cell]).item(),
            "enn_log_prob": np.log(table.ravel()[cell]).item(),
            "enn_error": (error[cell] / table.ravel()[cell]).item(),
            "redrawn_log_prob": np.log(product[cell]).item(),
            "num_samples": 0 if enumerated else config.num_samples,
        }
        for cell in range(table.size)
    ]
    if enumerated:
        return rows
    # The mean of the differences, but with the table that the library returns in place of the mean of its samples.
    sampled = cell_probs(direct)
    p = flip_test(
        cell_probs(outputs) - sampled,
        table.ravel() - np.mean(sampled, axis=0),
        generator=numpy_generator(test_key),
    )
    return [*rows, {"kind": "table", "p": p}]


def _exact(bnn: BNN, x: Any, cells: list[Row]) -> list[Row]:
    """Return the largest differences where both ways can be enumerated."""
    if bnn.atoms is None or bnn.enn.index.support() is None:
        return []
    outputs = np.asarray(predict.sample(bnn.enn, x, Draws.all(bnn.enn.index)).outputs, np.float64)
    table, expected = (np.exp([row[name] for row in cells]) for name in ("enn_log_prob", "bnn_log_prob"))
    differences = {
        "outputs": np.max(np.abs(outputs - bnn.atoms.outputs)).item(),
        "joint probabilities": np.max(np.abs(table - expected)).item(),
    }
    return [{"kind": "exact", "quantity": name, "difference": value} for name, value in differences.items()]


def agreement(config: BNNAgreement, *, key: PRNGKeyArray) -> list[Row]:
    """Return how one BNN, sampled directly, compares with its ENN."""
    names = ("inputs", "bnn", "direct", "index", "wide index", "tests", "wrong tests", "wide tests", "table test")
    keys: dict[str, PRNGKeyArray] = dict(zip(names, named_keys(key, *names), strict=True))
    inputs = numpy_generator(keys["inputs"]).standard_normal((config.tau, IN_DIM)).astype(np.float32)
    bnn = BNNS[config.bnn](inputs.astype(np.float64), WIDTH_ERROR, key=keys["bnn"])
    x = jnp.asarray(inputs)

    def sampled(enn: Any, name: str) -> Outputs:
        samples = predict.sample(enn, x, Draws.sample(enn.index, config.num_samples, key=keys[name], chunk_size=1000))
        return np.asarray(samples.outputs, np.float64)

    direct = bnn.sample(numpy_generator(keys["direct"]), config.num_samples)
    outputs = sampled(bnn.enn, "index")
    tested = config.num_tested * config.num_replicates
    rows = _tests(config, direct, outputs, "right", key=keys["tests"])
    wrong = redraw(outputs[:tested], config.num_replicates)
    rows += _tests(config, direct, wrong, "index redrawn", key=keys["wrong tests"])
    if bnn.too_wide is not None:
        wide = sampled(bnn.too_wide, "wide index")
        rows += _tests(config, direct, wide, "too wide", key=keys["wide tests"])
    cells = _table(bnn, x, direct, outputs, config, test_key=keys["table test"], key=keys["index"])
    return [{"bnn": config.bnn, **row} for row in (*rows, *cells, *_exact(bnn, x, cells))]


def run(config: BNNAgreement | CounterExample, *, key: PRNGKeyArray) -> list[Row]:
    """Run one unit."""
    if isinstance(config, CounterExample):
        return counterexample(config, key=key)
    return agreement(config, key=key)
