"""Theorem 3: the tests that judge it, the networks without the library, and the artifact at tier smoke."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from reproduce import __main__ as cli
from reproduce import results, verify
from reproduce.artifacts.thm3 import BNNsAsENNs
from reproduce.claims import Verdict
from reproduce.experiments import perceptron
from reproduce.experiments.bnns import BNNS, laplace_quantile
from reproduce.experiments.generators import numpy_generator
from reproduce.experiments.thm3 import cell_probs, redraw
from reproduce.experiments.thm3_counterexample import make_enn, residuals
from reproduce.experiments.two_sample import combine, energy_test, flip_test, projection_test
from reproduce.paths import REFERENCE, Output
from reproduce.registry import REGISTRY
from reproduce.stats import holm, uniformity

pytestmark = pytest.mark.once

ENTRY = REGISTRY["thm3"]


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    root = tmp_path_factory.mktemp("out")
    assert cli.main(["run", "--only", "thm3", "--tier", "smoke", "--out", str(root), "--quiet"]) == 0
    return Output(root=root, tier="smoke")


@pytest.fixture
def generator(getkey):
    return numpy_generator(getkey())


def test_no_claim_fails_and_the_exact_ones_hold(output):
    for line in results.settle([ENTRY], output):
        assert line.verdict is not Verdict.FAILS, line.claim.id
        assert line.measurement.standard_error > 0 or line.verdict is Verdict.HOLDS, line.claim.id


def test_numbers_agree_with_the_reference(output):
    comparison = verify.verify(ENTRY, output, REFERENCE)
    assert comparison.differences == ()
    assert comparison.num_rows > 100


def test_figure_is_drawn(output):
    assert output.figure("thm3", "pdf").read_bytes().startswith(b"%PDF")


def test_every_bnn_is_run_at_full_size():
    assert BNNsAsENNs().bnns == tuple(BNNS)


def test_p_values_of_equal_distributions_are_uniform(generator):
    samples = generator.standard_normal((200, 2, 20, 3))
    values = [energy_test(*pair, num_permutations=99, generator=generator) for pair in samples]
    assert stats.kstest(values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("difference", ["location", "scale", "dependence"])
def test_energy_test_finds_differences(difference, generator):
    first, second = generator.standard_normal((2, 300, 3))
    if difference == "location":
        second = second + 0.5
    elif difference == "scale":
        second = 2 * second
    else:
        second[:, 1] = second[:, 0]
    assert energy_test(first, second, num_permutations=199, generator=generator) == 1 / 200


def test_projection_test_finds_differences_and_survives_ties(generator):
    atoms = generator.standard_normal((4, 3))
    first, second = atoms[generator.integers(4, size=(2, 500))]
    # What single precision would make of the second sample.
    rounded = second.astype(np.float32).astype(np.float64)
    assert projection_test(first, rounded, num_projections=4, generator=generator) > 1e-3
    assert projection_test(first, 2 * rounded, num_projections=4, generator=generator) < 1e-6


def test_random_signs_reject_a_wrong_table_and_no_more_than_their_level_of_heavy_tails(generator):
    # Probabilities with a tail as heavy as those of long combinations of labels, in four cells.
    pairs = np.exp(-3 * generator.exponential(size=(300, 2, 400, 4)))
    p_values = []
    for first, second in pairs:
        differences = first - second
        p_values.append(flip_test(differences, np.mean(differences, axis=0), num_flips=99, generator=generator))
    # Exact: at most the level, but for chance of one in a thousand.
    for level in (0.01, 0.1):
        assert stats.binomtest(sum(p <= level for p in p_values), 300, level, "greater").pvalue > 1e-3
    differences = pairs[0, 0] - pairs[0, 1]
    wrong = np.mean(differences, axis=0) + np.array([0.0, 0.1, 0.0, 0.0])
    assert flip_test(differences, wrong, num_flips=9999, generator=generator) == 1 / 10_000


def test_combined_and_adjusted_p_values():
    assert combine([0.3]) == pytest.approx(0.3)
    assert combine([0.05, 0.05]) == pytest.approx(0.0025 * (1 - np.log(0.0025)))
    assert holm([0.04, 0.01, 0.5]) == pytest.approx([0.03, 0.08, 0.5])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def test_uniformity_is_that_of_scipy(generator):
    for power in (1.0, 1.3):
        values = generator.random(100) ** power
        assert uniformity(list(values)) == pytest.approx(stats.kstest(values, "uniform").pvalue, abs=0.01)
    assert uniformity([(i + 0.5) / 50 for i in range(50)]) == 1.0


def test_redrawing_keeps_marginals_and_no_input_shares_its_sample():
    outputs = np.arange(12.0).reshape(6, 2, 1)
    redrawn = redraw(outputs, 3)
    assert np.array_equal(np.sort(redrawn, axis=0), outputs)
    assert np.array_equal(redrawn[:, 0], outputs[:, 0])
    assert np.all(redrawn[:, 1, 0] != outputs[:, 1, 0])


def test_cells_are_all_combinations_of_labels(generator):
    outputs = generator.standard_normal((5, 2, 3))
    probs = np.asarray(jax.nn.softmax(jnp.asarray(outputs, dtype=float)))
    cells = cell_probs(outputs)
    assert np.allclose(np.sum(cells, axis=1), 1.0)
    assert np.allclose(cells[:, 1 * 3 + 2], probs[:, 0, 1] * probs[:, 1, 2], atol=1e-6)


def test_vectors_of_parameters_go_there_and_back(generator):
    parameters = perceptron.draw_parameters(generator, 1.0, 4)
    back = perceptron.unflatten(perceptron.flatten(parameters))
    assert all(np.array_equal(a, b) for a, b in zip(parameters, back, strict=True))


def test_masks_are_all_there_with_their_probabilities(generator):
    parameters = perceptron.draw_parameters(generator, 1.0)
    x = generator.standard_normal((3, perceptron.IN_DIM))
    atoms = perceptron.masked_atoms(parameters, x, 0.25)
    assert len(atoms.probs) == 2**perceptron.HIDDEN
    assert np.sum(atoms.probs) == pytest.approx(1.0)
    # Without a unit dropped it is the network, but for the factor that makes up for the others.
    scaled = (parameters[0] / 0.75, parameters[1] / 0.75, *parameters[2:])
    assert np.allclose(atoms.outputs[-1], perceptron.forward(scaled, x))
    assert np.allclose(atoms.outputs[0], parameters[3])


def test_gaussian_networks_do_not_depend_on_the_eigenvectors_that_a_machine_finds(generator):
    size = sum(int(np.prod(shape)) for shape in perceptron.SHAPES)
    x, mean = generator.standard_normal((3, perceptron.IN_DIM)), generator.standard_normal(size)
    factor = generator.standard_normal((size, 4))
    covariance = np.eye(size) + factor @ factor.T
    noise = 1e-9 * generator.standard_normal((size, size))
    # Most eigenvalues are equal, so the least change of the matrix is another basis of eigenvectors.
    pair = [perceptron.gaussian_sampler(x, mean, matrix) for matrix in (covariance, covariance + noise + noise.T)]
    first, second = (sample(np.random.default_rng(0), 5) for sample in pair)
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_gaussian_networks_have_the_given_moments(generator):
    size = sum(int(np.prod(shape)) for shape in perceptron.SHAPES)
    factor = generator.standard_normal((size, 4))
    x, mean = np.zeros((1, perceptron.IN_DIM)), np.zeros(size)
    # At x = 0 with a bias of zero in the hidden layer, outputs are the biases of the last one.
    mean[-perceptron.NUM_CLASSES :] = 1.0
    factor[: -perceptron.NUM_CLASSES] = 0.0
    outputs = perceptron.gaussian_sampler(x, mean, factor @ factor.T)(generator, 100_000)[:, 0]
    last = factor[-perceptron.NUM_CLASSES :]
    np.testing.assert_allclose(outputs.mean(axis=0), 1.0, atol=0.05)
    np.testing.assert_allclose(np.cov(outputs.T), last @ last.T, atol=0.1)


def test_laplace_quantiles(getkey):
    z = jr.normal(getkey(), (50,))
    expected = stats.laplace.ppf(stats.norm.cdf(np.asarray(z, np.float64)))
    assert jnp.allclose(laplace_quantile(z), jnp.asarray(expected, dtype=float), atol=1e-5)


@pytest.mark.parametrize("name", ["ensemble", "posterior samples"])
def test_finite_bnn_is_its_enn_particle_by_particle(name, getkey):
    x = np.array([[0.5, -1.0], [0.0, 2.0]])
    bnn = BNNS[name](x, 1.3, key=getkey())
    for number in (0, 3):
        found = jnp.stack([bnn.enn(row, jnp.asarray(number)) for row in jnp.asarray(x, dtype=float)])
        assert np.allclose(found, bnn.atoms.outputs[number], atol=1e-5)


def test_counterexample_is_not_linear_and_by_how_much(generator):
    x = generator.standard_normal((8, 3))
    enn = make_enn(np.array([1.0, -2.0, 0.5]), 0.7)
    z = jnp.array([1.5])
    function = np.array([[enn(row, z)[0] for row in jnp.asarray(x, dtype=float)]], dtype=np.float64)
    _, squares, *_ = np.linalg.lstsq(x, function[0] - x @ np.array([1.0, -2.0, 0.5]), rcond=None)
    assert residuals(x, function) == pytest.approx(squares / 8, rel=1e-4)
    assert enn(jnp.zeros(3), z)[0] == pytest.approx(0.7 * 1.5)
