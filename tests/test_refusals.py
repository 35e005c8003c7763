"""What cannot be answered is refused: NaN, numbers that would wrap around, indices that are none, other types.

One table of calls, each of which once returned a number.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import epinet_eqx as epi
from epinet_eqx import (
    acquisition,
    bandits,
    baselines,
    bayes,
    data,
    decisions,
    metrics,
    pitman_yor,
    predict,
    testbed,
    training,
    tuning,
)
from epinet_eqx.indices import TupleIndex
from epinet_eqx.likelihoods import Gaussian
from epinet_eqx.losses import CrossEntropy, LogLoss, SquaredLoss
from epinet_eqx.networks import MLP

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("as_user")]

KEY = jr.key(0)
BASE = MLP(3, 4, (5,), key=KEY)
ENN = epi.attach(BASE, out_size=4, index_dim=3, priors=(), key=jr.fold_in(KEY, 1))
PARTICLES = bayes.Ensemble(eqx.filter_vmap(lambda key: MLP(3, 4, (5,), key=key))(jr.split(jr.fold_in(KEY, 2), 3)))
DRAWS = epi.Draws.sample(ENN.index, 5, key=jr.fold_in(KEY, 3))
X, Y = jnp.ones((4, 3)), np.arange(4)
# As 32 bits it is class 1.
WIDE = np.array([0, 1, 2, 2**32 + 1])
LOGITS = np.zeros((4, 4), np.float32)
LOG_PROBS = np.log(np.full((4, 4), 0.25, np.float32))
REWARDS = jnp.array([[1.0, jnp.nan], [0.0, 0.0]])
# A regression, whose classes somebody asks for.
ONE = epi.attach(MLP(3, 1, (5,), key=jr.fold_in(KEY, 8)), out_size=1, index_dim=3, priors=(), key=jr.fold_in(KEY, 9))
ONE_DRAWS = epi.Draws.sample(ONE.index, 5, key=jr.fold_in(KEY, 10))
BOX = jnp.array([[0.0, 0.0], [1.0, 1.0]])
HEAD = pitman_yor.attach(BASE, jr.normal(jr.fold_in(KEY, 14), (9, 3)), alpha=0.4, key=jr.fold_in(KEY, 15))
TWO_CLASSES = "`enn` must have at least 2 outputs for a `Categorical` likelihood; got 1."
RANGE = "`y` must hold integers from -2147483648 to 2147483647, the range of int32"

# What is hidden in the last row would count.
MASKED = np.ma.masked_array(np.asarray(X), mask=np.arange(12).reshape(4, 3) > 8)
# Finite as 64 bits, infinite as 32.
LARGE = np.full((2, 3), 1e300)
OUTCOMES = np.eye(3)
KEYS = jr.split(jr.fold_in(KEY, 18), 3)
NO_MASK = "must have no mask, such as the result of `.filled(value)`; got a masked array of shape (4, 3)."
NO_ENN = "`enn` must be an ENN, such as `attach` or `bayes.as_enn` returns; got MLP."
LEARNER = bandits.OnlineLearner.start(
    bandits.ENNAgent(
        lambda key: epi.attach(MLP(3, 1, (5,), key=key), out_size=1, index_dim=3, priors=(), key=jr.fold_in(key, 1)),
        SquaredLoss(),
        bandits.GaussianReward(),
        bandits.Greedy(2),
    ),
    np.ones((2, 3), np.float32),
    capacity=10,
    key=jr.fold_in(KEY, 17),
)

REFUSED = {
    "masked inputs": (lambda: predict.marginal_log_probs(ENN, MASKED, DRAWS), f"`x` {NO_MASK}"),
    "masked labels": (
        lambda: metrics.log_losses(ENN, X, np.ma.masked_array(Y, mask=Y > 2), DRAWS),
        "`y` must have no mask",
    ),
    "masked data": (
        lambda: training.fit(ENN, (MASKED, Y), CrossEntropy(), num_steps=1, key=KEY),
        f"`(x, y)` {NO_MASK}",
    ),
    "masked scores": (lambda: metrics.auroc(MASKED[:, 0], np.ones(3)), "`scores_in` must have no mask"),
    "masked features": (lambda: metrics.near_pairs(MASKED), f"`features` {NO_MASK}"),
    "masked data set": (lambda: data.ArrayDataset(MASKED, Y, num_classes=4), f"`x` {NO_MASK}"),
    "complex features": (
        lambda: metrics.near_pairs(1j * OUTCOMES),
        "`features` must hold real numbers",
    ),
    "new wide input": (
        lambda: predict.conditional_log_probs(ENN, X, Y, np.full(3, 2**32), DRAWS),
        "`x_new` must hold integers from -2147483648 to 2147483647, the range of int32",
    ),
    "wide counts": (
        lambda: pitman_yor.joint_log_prob(LOGITS, np.full((4, 4), 2**32 + 1), 0.5),
        "`counts` must hold integers from -2147483648 to 2147483647, the range of int32",
    ),
    "counts that are none": (
        lambda: pitman_yor.joint_log_prob(LOGITS, np.full((4, 4), 0.5), 0.5),
        "`counts` must hold integers; got float32.",
    ),
    "bandit, wide label": (lambda: bandits.ClassificationBandit(X, WIDE), RANGE),
    "problem, wide label": (
        lambda: testbed.Problem.from_arrays(
            X, WIDE, np.ones((2, 1, 3)), np.zeros((2, 1), int), np.zeros(2), temperature=0.1, num_classes=3
        ),
        RANGE,
    ),
    "problem, wide test label": (
        lambda: testbed.Problem.from_arrays(
            X, Y, np.ones((2, 1, 3)), np.full((2, 1), 2**32), np.zeros(2), temperature=0.1, num_classes=4
        ),
        "`test_y` must hold integers from -2147483648 to 2147483647, the range of int32",
    ),
    "learner, wide candidate": (
        lambda: LEARNER.act(np.full((2, 3), 2**32), key=KEY),
        "`candidates` must hold integers from -2147483648 to 2147483647, the range of int32",
    ),
    "learner, wide features": (
        lambda: LEARNER.observe(np.full(3, 2**32), 1.0),
        "`x` must hold integers from -2147483648 to 2147483647, the range of int32",
    ),
    "learner, two rewards": (
        lambda: LEARNER.observe(np.ones(3), np.ones(2)),
        "`reward` must have shape (); got (2,).",
    ),
    "large rewards": (
        lambda: decisions.best_actions(LARGE[0]),
        "`expected` must be finite; got 3 non-finite of 3 values.",
    ),
    "large outcomes": (
        lambda: decisions.choose_set(decisions.largest_outcome, LARGE, 1),
        "`outcomes` must be finite; got 6 non-finite of 6 values.",
    ),
    "infinite action values": (
        lambda: bandits.action_values(jnp.array([[1.0, jnp.inf]])),
        "`rewards` must be finite; got 1 non-finite of 2 values.",
    ),
    "action values of nothing": (
        lambda: bandits.action_values(jnp.ones((0, 3))),
        "`rewards` must have shape (samples, actions) and not be empty; got (0, 3).",
    ),
    "positions as a set": (
        lambda: decisions.set_reward(decisions.any_success, OUTCOMES, np.array([0, 1, 2])),
        "`chosen` must hold one boolean per candidate, 3; got shape (3,) of int64.",
    ),
    "positions as available": (
        lambda: decisions.choose_set(decisions.any_success, OUTCOMES, 1, available=np.array([0, 1, 2])),
        "`available` must hold one boolean per candidate, 3; got shape (3,) of int64.",
    ),
    "reward of one sample": (
        lambda: decisions.set_reward(decisions.any_success, OUTCOMES[0], np.ones(3, bool)),
        "`outcomes` must have shape (samples, candidates) and not be empty; got (3,).",
    ),
    "draws at NaN": (
        lambda: epi.Draws.given(ENN.index, jnp.full((2, 3), jnp.nan)),
        "`zs` must be finite; got 6 non-finite of 6 values.",
    ),
    "draws of a number": (
        lambda: epi.Draws.sample(3, 5, key=KEY),
        "`index` must be a reference distribution, such as `enn.index`; got int.",
    ),
    "several keys": (
        lambda: epi.Draws.sample(ENN.index, 5, key=KEYS),
        "`key` must be one random key, of which `jax.random.split` makes several; got key<fry> of shape (3,).",
    ),
    "a seed": (lambda: epi.named_keys(0, "a"), "`key` must be a random key, such as `jax.random.key(0)`; got int."),
    "a network": (lambda: predict.marginal_log_probs(BASE, X, DRAWS), NO_ENN),
    "a network tempered": (lambda: epi.Tempered(BASE, 1.0), NO_ENN),
    "a dictionary": (
        lambda: predict.marginal_log_probs(ENN, {"x": X}, DRAWS),
        "`x` must hold inputs that `enn` accepts, along a leading batch axis; got shape {'x': (4, 3)}: ",
    ),
    "no likelihood": (
        lambda: predict.joint_log_prob(ENN, X, Y, DRAWS, likelihood=None),
        "`likelihood` must be one, such as `Categorical()`; got NoneType.",
    ),
    "loss of no likelihood": (
        lambda: LogLoss("gaussian"),
        "`likelihood` must be one, such as `Categorical()`; got str.",
    ),
    "no bootstrap": (
        lambda: CrossEntropy(bootstrap=0.5),
        "`bootstrap` must be one, such as `BernoulliBootstrap(0.5, key=key)`; got float.",
    ),
    "no penalty": (lambda: CrossEntropy(penalty=0.5), "`penalty` must be one, such as `L2(0.1)`; got float."),
    "temperature as text": (lambda: epi.Tempered(ENN, "warm"), "`temperature` must be a number; got 'warm'."),
    "several temperatures": (
        lambda: epi.Tempered(ENN, [0.5, 1.0]),
        "`temperature` must be one number; got shape (2,).",
    ),
    "tuple of a half": (lambda: TupleIndex(ENN.index, 1.5), "`length` must be a positive integer; got 1.5."),
    "entropy of a number": (lambda: predict.entropy(0.5), "`log_probs` must have an axis of classes; got one number."),
    "joint, wide label": (lambda: predict.joint_log_prob(ENN, X, WIDE, DRAWS), RANGE),
    "independent, wide label": (lambda: predict.independent_log_prob(ENN, X, WIDE, DRAWS), RANGE),
    "conditional, wide label": (lambda: predict.conditional_log_probs(ENN, X, WIDE, X[0], DRAWS), RANGE),
    "marginal loss, wide label": (lambda: metrics.marginal_log_loss(ENN, X, WIDE, DRAWS), RANGE),
    "log losses, wide label": (lambda: metrics.log_losses(ENN, X, WIDE, DRAWS), RANGE),
    "joint gain, wide label": (lambda: metrics.joint_gain(ENN, X, WIDE, DRAWS), RANGE),
    "accuracy, wide label": (lambda: metrics.accuracy(LOG_PROBS, WIDE), RANGE),
    "Brier score, wide label": (lambda: metrics.brier_score(LOG_PROBS, WIDE), RANGE),
    "scores, wide label": (lambda: acquisition.joint_loss_scores(ENN, X, DRAWS, y=WIDE), RANGE),
    "urn, wide label": (lambda: pitman_yor.logits_log_losses(LOGITS, WIDE, alpha=0.5), RANGE),
    "tune, wide label": (lambda: tuning.tune_temperature(ENN, X, WIDE, DRAWS, temperatures=[0.5]), RANGE),
    "list, wide label": (lambda: predict.joint_log_prob(ENN, X, WIDE.tolist(), DRAWS), RANGE),
    "wide input": (
        lambda: predict.marginal_log_probs(ENN, np.full((4, 3), 2**32), DRAWS),
        "`x` must hold integers from -2147483648 to 2147483647, the range of int32",
    ),
    "complex input": (
        lambda: predict.marginal_log_probs(ENN, X.astype(jnp.complex64), DRAWS),
        "`x` must hold real numbers; got complex64",
    ),
    "text": (
        lambda: predict.marginal_log_probs(ENN, np.array([["a"] * 3]), DRAWS),
        "`x` must hold real numbers; got <U1",
    ),
    "objects": (
        lambda: predict.marginal_log_probs(ENN, np.array([[None] * 3]), DRAWS),
        "`x` must hold real numbers; got object",
    ),
    "no particle": (
        lambda: epi.Draws.given(PARTICLES.index, jnp.array([0, 7])),
        "`zs` must hold indices of the support, 3 values from 0 to 2; got 7.",
    ),
    "negative particle": (
        lambda: epi.Draws.given(PARTICLES.index, jnp.array([-1, 0])),
        "`zs` must hold indices of the support, 3 values from 0 to 2; got -1.",
    ),
    "particles as floats": (
        lambda: epi.Draws.given(PARTICLES.index, jnp.array([0.0, 1.0])),
        "`zs` must hold indices of type int32; got float32.",
    ),
    "one input": (
        lambda: predict.marginal_log_probs(ENN, X[0], DRAWS),
        "`x` must hold inputs that `enn` accepts, along a leading batch axis; got shape (3,): `x` must have",
    ),
    "a list": (
        lambda: predict.marginal_log_probs(ENN, X.tolist(), DRAWS),
        "`x` must hold arrays; got lists of numbers, of which `np.asarray` makes arrays.",
    ),
    "lists to train on": (
        lambda: training.fit(ENN, (X.tolist(), Y.tolist()), CrossEntropy(), num_steps=1, key=KEY),
        "`(x, y)` must hold arrays; got lists of numbers, of which `np.asarray` makes arrays.",
    ),
    "text to train on": (
        lambda: training.fit(ENN, (X, np.array(list("abcd"))), CrossEntropy(), num_steps=1, key=KEY),
        "`(x, y)` must hold real numbers; got <U1.",
    ),
    "data in a list": (
        lambda: training.fit(ENN, [X, Y], CrossEntropy(), num_steps=1, key=KEY),
        "`data` must be a tuple `(x, y)`, or yield a `Batch` or a dictionary",
    ),
    "inputs of another size": (
        lambda: training.fit(ENN, (X[:, :2], Y), CrossEntropy(), num_steps=1, key=KEY),
        "`x` must hold inputs that `model` accepts, along a leading batch axis; got shape (4, 2)",
    ),
    "a number as a key": (
        lambda: training.fit(ENN, (X, Y), CrossEntropy(), num_steps=1, key=0),
        "`key` must be a random key, such as `jax.random.key(0)`; got int.",
    ),
    "a batch as the example": (
        lambda: epi.attach(lambda p, x: (p @ x, x), params=jnp.ones((2, 3)), example=X, index_dim=2, key=KEY),
        "`base` must accept `example`, one input without a batch axis, as `base(params, x)`; got shapes (4, 3): ",
    ),
    "parameters that are not given": (
        lambda: epi.attach(lambda p, x: (p @ x, x), example=X[0], index_dim=2, key=KEY),
        "`base` must accept `example`, one input without a batch axis, as `base(x)`; got shapes (3,): ",
    ),
    "a base without features": (
        lambda: epi.attach(lambda x: x, example=X[0], index_dim=2, key=KEY),
        "(`networks.Tapped` takes them from a layer of an Equinox model); got an array of shape (3,).",
    ),
    "features that hide their arrays": (
        lambda: epi.attach(lambda x: x, features=lambda x: BASE(x), example=X[0], index_dim=2, key=KEY),
        "`base` and `features` must hold the arrays that they read; got a function that hides",
    ),
    "a prior of another index, without an example": (
        lambda: epi.attach(BASE, out_size=4, index_dim=2, priors=ENN.priors[:1], key=KEY),
        "`priors[0]` must have an index of dimension `index_dim`, 2; got shape (3,).",
    ),
    "a list as one input": (
        lambda: BASE(X[0].tolist()),
        "`x` must be an array of shape (3,); got list.",
    ),
    "the class of a loss": (
        lambda: training.fit(ENN, (X, Y), CrossEntropy, num_steps=1, key=KEY),
        "`loss` must be a loss, such as `CrossEntropy()`, or a `FunctionLoss`; got the class CrossEntropy.",
    ),
    "a function as a loss": (
        lambda: training.fit(ENN, (X, Y), lambda output, y: 0.0, num_steps=1, key=KEY),
        "`loss` must be a loss, such as `CrossEntropy()`, or a `FunctionLoss`; got function.",
    ),
    "one prior": (
        lambda: epi.attach(BASE, out_size=4, index_dim=3, priors=ENN.priors[0], key=KEY),
        "`priors` must be a tuple of priors; got Prior.",
    ),
    "entropy of NaN": (
        lambda: predict.entropy(jnp.array([[jnp.nan, 0.0]])),
        "`log_probs` must not hold NaN; got 1 of 2 values.",
    ),
    "classes of one output": (lambda: predict.marginal_log_probs(ONE, X, ONE_DRAWS), TWO_CLASSES),
    "joint classes of one output": (lambda: predict.joint_log_probs(ONE, X, ONE_DRAWS), TWO_CLASSES),
    "entropy scores of one output": (lambda: acquisition.entropy_scores(ONE, X, ONE_DRAWS), TWO_CLASSES),
    "joint scores of one output": (lambda: acquisition.joint_loss_scores(ONE, X, ONE_DRAWS), TWO_CLASSES),
    "EPIG of one output": (lambda: acquisition.epig_scores(ONE, X, X, ONE_DRAWS), TWO_CLASSES),
    "BatchBALD of one output": (
        lambda: acquisition.batch_bald(ONE, X, 2, ONE_DRAWS, key=jr.fold_in(KEY, 11)),
        TWO_CLASSES,
    ),
    "R-hat of NaN": (
        lambda: bayes.split_r_hat(jnp.ones((2, 8)).at[0, 0].set(jnp.nan)),
        "`values` must be finite; got 1 non-finite of 16 values.",
    ),
    "norm of NaN": (
        lambda: baselines.spectral_norm(jnp.array([[1.0, jnp.nan]])),
        "`weight` must not hold NaN; got 1 of 2 values.",
    ),
    "action values of NaN": (
        lambda: bandits.action_values(REWARDS),
        "`rewards` must be finite; got 1 non-finite of 4 values.",
    ),
    "set of NaN": (
        lambda: decisions.choose_set(decisions.any_success, REWARDS, 1),
        "`outcomes` must be finite; got 1 non-finite of 4 values.",
    ),
    "reward of NaN": (
        lambda: decisions.set_reward(decisions.any_success, REWARDS, jnp.array([True, False])),
        "`outcomes` must be finite; got 1 non-finite of 4 values.",
    ),
    "tolerance NaN": (
        lambda: decisions.best_actions(jnp.array([1.0, 0.0]), tolerance=float("nan")),
        "`tolerance` must be at least 0; got nan.",
    ),
    "temperature NaN": (
        lambda: pitman_yor.logits_log_losses(LOGITS, Y, alpha=0.5, temperature=float("nan")),
        "`temperature` must be finite and at least 1e-06; got nan.",
    ),
    "temperature -1": (
        lambda: pitman_yor.logits_log_losses(LOGITS, Y, alpha=0.5, temperature=-1.0),
        "`temperature` must be finite and at least 1e-06; got -1.0.",
    ),
    "duel of NaN": (
        lambda: decisions.thompson_duel(REWARDS),
        "`rewards` must be finite; got 1 non-finite of 4 values.",
    ),
    "duel of complex numbers": (lambda: decisions.infomax_duel(1j * np.eye(3)), "`rewards` must hold real numbers"),
    "design at NaN": (
        lambda: decisions.SampledFunction(ONE, jnp.full(3, jnp.nan)),
        "`z` must be finite; got 3 non-finite of 3 values.",
    ),
    "maximum of two values": (
        lambda: decisions.maximize(lambda x: x, BOX, key=jr.fold_in(KEY, 12)),
        "`function` must return one real number as a floating-point array; got ",
    ),
    "maximum of an integer": (
        lambda: decisions.maximize(jnp.argmax, BOX, key=jr.fold_in(KEY, 13)),
        "`function` must return one real number as a floating-point array; got ",
    ),
    # The upper tail is no number in single precision.
    "interval, level": (
        lambda: predict.interval(ONE, X, ONE_DRAWS, likelihood=Gaussian(1.0), level=1 - 1e-9),
        "`level` must be between 0 and 1, by at least 2e-06; got 0.999999999.",
    ),
    "interval, all reals": (
        lambda: predict.interval(ONE, X, ONE_DRAWS, likelihood=Gaussian(3e38)),
        "`enn` must output targets whose intervals can be told in this precision",
    ),
    "coverage, levels": (
        lambda: metrics.coverage(ONE, X, np.zeros(4), ONE_DRAWS, likelihood=Gaussian(1.0), levels=(0.5, 1 - 1e-9)),
        "`levels` must be between 0 and 1, by at least 2e-06; got 0.999999999.",
    ),
    "calibrate, wide label": (lambda: pitman_yor.calibrate(HEAD, X, WIDE), RANGE),
    "calibrate, wide count": (lambda: pitman_yor.calibrate(HEAD, X, np.full((4, 4), 2**32 + 1)), RANGE),
    "calibrate, many labels": (
        lambda: pitman_yor.calibrate(HEAD, X, np.full((4, 4), 10**6)),
        "`y` must hold at most 500 labels of an input, or `tau` be that; got 4000000.",
    ),
    # As 8 bits the totals are -112.
    "calibrate, few inputs": (
        lambda: pitman_yor.calibrate(HEAD, X, np.full((4, 4), 100, np.int8)),
        "`x` must hold an even number of inputs, at least 80",
    ),
    "calibrate, batch size": (
        lambda: pitman_yor.calibrate(HEAD, X, Y, batch_size=0),
        "`batch_size` must be a positive integer; got 0.",
    ),
    "calibrate, penalty": (
        lambda: pitman_yor.calibrate(HEAD, X, Y, l2=-1.0),
        "`l2` must be finite and at least 0; got -1.0.",
    ),
    "urn of NaN": (
        lambda: pitman_yor.repeat_log_probs(jnp.array(jnp.nan), jnp.array(0.5), 3),
        "`log_w` must not hold NaN; got 1 of 1 values.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_answered_is_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


def test_wide_labels_are_refused_in_double_precision_too():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        base = MLP(3, 4, (5,), key=jr.fold_in(KEY, 4))
        enn = epi.attach(base, out_size=4, index_dim=3, priors=(), key=jr.fold_in(KEY, 5))
        draws = epi.Draws.sample(enn.index, 5, key=jr.fold_in(KEY, 6))
        message = r"`y` must hold classes from 0 to 3; got values from 0 to 4294967297."
        with pytest.raises(ValueError, match=message):
            predict.joint_log_prob(enn, jnp.ones((4, 3)), jnp.asarray(WIDE), draws)
        with pytest.raises(ValueError, match=message):
            metrics.accuracy(jnp.asarray(LOG_PROBS), jnp.asarray(WIDE))
        with pytest.raises(ValueError, match=message):
            training.fit(
                enn, (jnp.ones((4, 3)), jnp.asarray(WIDE)), CrossEntropy(), num_steps=1, key=jr.fold_in(KEY, 7)
            )


def test_classes_are_compared_in_the_precision_given():
    # In single precision both classes are equally probable, and the first one wins.
    log_probs = np.log(np.array([[0.5 - 1e-10, 0.5 + 1e-10]]))
    assert metrics.accuracy(log_probs, np.array([1])) == 1
    assert metrics.expected_calibration_error(log_probs, np.array([1])) == pytest.approx(0.5, abs=1e-6)


def test_neighbors_far_from_the_origin_are_found():
    # In single precision the squares have no digits for these distances.
    places = np.array([0.0, 5.0, 0.1, 5.2]) * 1e-3
    features = np.stack([1e4 + places, 1e4 - places], axis=1)
    np.testing.assert_array_equal(metrics.near_pairs(features), [[0, 2], [1, 3]])
    np.testing.assert_array_equal(metrics.near_pairs(np.stack([places, -places], axis=1)), [[0, 2], [1, 3]])
    # Their squares overflow.
    np.testing.assert_array_equal(metrics.near_pairs(np.stack([1e300 * places, places], axis=1)), [[0, 2], [1, 3]])


def test_lists_and_integers_are_joint_samples_too():
    rewards = [[1, 2, 0], [0, 3, 1], [2, 1, 5]]
    expected = decisions.preference_probs(jnp.array(rewards, dtype=float))
    for given in (rewards, np.array(rewards), np.array(rewards, np.float32)):
        np.testing.assert_array_equal(decisions.preference_probs(given), expected)
    best = decisions.maximize(
        lambda x: -jnp.sum(jnp.square(x)), [[-1, -1], [1, 1]], num_steps=1, key=jr.fold_in(KEY, 16)
    )
    assert float(best.value) > -0.1
