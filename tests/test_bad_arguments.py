"""Every bad value of every argument is refused by a sentence that names an argument, what it must be, and the value.

One table of functions with good arguments, and bad values for each kind of argument. They are refused before anything
compiles, so a call costs nothing. `test_refusals.py` has the values that once gave an answer.
"""

import jax.random as jr
import numpy as np
import optax
import pytest
from bad_values import ENNS, FUNCTIONS, KEYS, NUMBERS, POSITIVE, SHARES, SIZES, answers, arrays, labels

import epinet_eqx as epi
from epinet_eqx import pitman_yor, training, tuning
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.networks import MLP

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("as_user")]

KEY = jr.key(0)
BASE = MLP(3, 4, (5,), key=KEY)
ENN = epi.attach(BASE, out_size=4, index_dim=3, priors=(), key=jr.fold_in(KEY, 1))
DRAWS = epi.Draws.sample(ENN.index, 5, key=jr.fold_in(KEY, 4))
X = np.asarray(jr.normal(jr.fold_in(KEY, 5), (8, 3)))
Y = np.arange(8) % 4
HEAD = pitman_yor.attach(BASE, X, alpha=0.4, key=jr.fold_in(KEY, 7))
STATE = training.init_state(ENN, optax.sgd(0.1), key=jr.fold_in(KEY, 9))
FIT = {
    "model": ENN,
    "data": (X, Y),
    "loss": CrossEntropy(),
    "num_steps": 1,
    "progress": False,
    "key": jr.fold_in(KEY, 11),
}

# name: (function, good arguments, bad values of some of them).
CALLS = {
    "fit": (
        training.fit,
        FIT,
        {
            "model": (None, 3, "a", MLP),
            "data": [(x, Y) for x in arrays(X)] + [(X, y) for y in labels(Y)] + [None, "a", (), X, (X,), 3],
            "loss": (None, "a", 1.0, CrossEntropy),
            "num_steps": (*SIZES[1:4], *SIZES[5:]),
            "batch_size": SIZES[:4],
            "num_index_samples": (*SIZES[:4], "a"),
            "capacity": (*SIZES[:4], "a", 1),
            "block_size": SIZES,
            "eval_every": (*SIZES[:4], "a"),
            "patience": (*SIZES[:4], "a"),
            "log_every": SIZES,
            "optimizer": (None, "a", 0.1),
            "sampling": FUNCTIONS,
            "validation": [(X, y) for y in labels(Y)] + ["a", 3],
            "key": KEYS,
        },
    ),
    "fit_ensemble": (
        training.fit_ensemble,
        {"make_particle": lambda key: BASE, "num_particles": 2} | {n: FIT[n] for n in FIT if n != "model"},
        {"make_particle": FUNCTIONS, "num_particles": SIZES, "num_steps": SIZES[1:4], "key": KEYS},
    ),
    "train": (
        training.train,
        {
            "state": STATE,
            "data": [{"x": X, "y": Y, "i": np.arange(8)}],
            "objective": training.EpistemicObjective(CrossEntropy(), num_index_samples=2),
            "optimizer": optax.sgd(0.1),
            "num_steps": 1,
            "progress": False,
        },
        {
            "state": (None, 3, "a", ENN),
            "data": (None, "a", 3, (X, Y)),
            "objective": (None, "a", CrossEntropy()),
            "num_steps": (*SIZES[1:4], *SIZES[5:]),
            "microbatches": SIZES,
            "log_every": SIZES,
            "ema_decay": ("a", float("nan"), -1.0, 1.5, True),
            "optimizer": (None, "a", 0.1),
        },
    ),
    "tune": (
        tuning.tune,
        {"build": lambda t: epi.Tempered(ENN, t), "candidates": np.array([0.5, 1.0]), "x": X, "y": Y, "draws": DRAWS},
        {
            "build": (*FUNCTIONS, lambda t: BASE, lambda t: None),
            "candidates": arrays([0.5, 1.0]),
            "x": arrays(X),
            "y": labels(Y),
            "draws": (None, 5, KEY),
            "tau": (*SIZES, 2**40),
            "metric": (None, "a", 1),
            "max_marginal_loss_increase": (*POSITIVE[:-1], float("inf")),
        },
    ),
    "tune_temperature": (
        tuning.tune_temperature,
        {"enn": ENN, "x": X, "y": Y, "draws": DRAWS, "temperatures": [0.5]},
        {"enn": ENNS, "temperatures": (*arrays([0.5, 2.0]), [0.0], [-1.0], [[0.5]], 0.5), "tau": (*SIZES, 2**40)},
    ),
    "tuning.calibrate": (
        tuning.calibrate,
        {"enn": ENN, "x": X, "y": Y, "draws": DRAWS, "key": jr.fold_in(KEY, 12)},
        {
            "enn": (*ENNS, HEAD),
            "with_scale": FUNCTIONS[1:],
            "tau": SIZES,
            "max_marginal_loss_increase": POSITIVE,
            "key": KEYS,
        },
    ),
    "pitman_yor.calibrate": (
        pitman_yor.calibrate,
        {"enn": HEAD, "x": X, "y": Y},
        {
            "enn": (*ENNS, ENN),
            "x": arrays(X),
            "tau": SIZES,
            "l2": POSITIVE,
            "batch_size": SIZES,
            "length_scales": arrays([0.3]),
        },
    ),
    "pitman_yor.attach": (
        pitman_yor.attach,
        {"base": BASE, "examples": X, "key": jr.fold_in(KEY, 13)},
        {
            "base": FUNCTIONS,
            "examples": arrays(X),
            "alpha": SHARES,
            "temperature": POSITIVE,
            "length_scale": POSITIVE,
            "num_frequencies": SIZES,
            "key": KEYS,
        },
    ),
    "logits_log_losses": (
        pitman_yor.logits_log_losses,
        {"logits": np.zeros((8, 4)), "y": Y, "alpha": 0.5},
        {
            "logits": arrays(np.zeros((8, 4))),
            "y": labels(Y),
            "alpha": SHARES[:4],
            "temperature": POSITIVE,
            "tau": (*SIZES, 2**40),
        },
    ),
    "pitman_yor.log_losses": (
        pitman_yor.log_losses,
        {"enn": HEAD, "x": X, "y": Y},
        {"enn": (*ENNS, ENN), "batch_size": SIZES},
    ),
    "log_stable": (
        pitman_yor.log_stable,
        {"alpha": 0.5, "g1": X[0], "g2": X[1]},
        {"alpha": SHARES, "g1": (X[0] * np.nan, X[0] * 1j, X[0].astype(str), X[0][:2]), "g2": ("a", None)},
    ),
    "log_stable_quantile": (
        pitman_yor.log_stable_quantile,
        {"alpha": 0.5, "g": X[0]},
        {"alpha": SHARES[:2], "g": (X[0] * np.nan, X[0] * 1j, "a", None)},
    ),
    "log_num_clusters": (
        pitman_yor.log_num_clusters,
        {"alpha": 0.5, "max_count": 3},
        {"alpha": SHARES, "max_count": (*SIZES, 2**40)},
    ),
    "log_stirling": (
        pitman_yor.log_stirling,
        {"alpha": 0.5, "max_count": 3},
        {"alpha": SHARES, "max_count": (*SIZES, 2**40)},
    ),
    "repeat_log_probs": (
        pitman_yor.repeat_log_probs,
        {"log_w": -1.0, "alpha": 0.5, "max_count": 3},
        {"log_w": ("a", None, 1.0, float("nan"), 1j, [-1.0]), "alpha": SHARES, "max_count": (*SIZES, 2**40)},
    ),
    "counts_log_prob": (
        pitman_yor.counts_log_prob,
        {"logits": X[0], "counts": np.array([1, 0, 2]), "alpha": 0.5, "max_count": 3},
        {
            "logits": (X[0] * np.nan, X[0] * 1j, X, "a", None),
            "counts": (np.array([1.0, 0, 2]), np.array([-1, 0, 2]), np.array([9, 0, 0]), np.ones(4, int), "a", None),
            "alpha": SHARES,
            "max_count": (*SIZES, 2**40),
        },
    ),
    "LogisticAlpha": (
        pitman_yor.LogisticAlpha,
        {"weight": X[0], "bias": 0.0},
        {"weight": [*arrays(X[0])[:7], X, "a", None], "bias": NUMBERS},
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_bad_value_is_refused_by_a_sentence(call):
    wrong = answers(*CALLS[call])
    assert not wrong, "\n".join(wrong)
