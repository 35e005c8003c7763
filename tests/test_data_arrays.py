"""Data in memory: arrays, digits, pairs of digits, normalization."""

import json
import subprocess
import sys

import jax.random as jr
import numpy as np
import pytest

from epinet_eqx.data import ArrayDataset, Normalization, digit_pairs, digits


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    reference = load_digits()
    train, test = digits("train"), digits("test")
    assert (len(train), len(test), train.num_classes) == (1437, 360, 10)
    np.testing.assert_array_equal(np.concatenate([train.x, test.x])[:, 0] * 16, reference.images)
    np.testing.assert_array_equal(np.concatenate([train.y, test.y]), reference.target)
    np.testing.assert_array_equal(np.concatenate([train.i, test.i]), np.arange(1797))
    assert np.bincount(train.y).min() > 100 and np.bincount(test.y).min() > 30


def test_digit_pairs_are_two_digits_side_by_side(getkey):
    key = getkey()
    for split in ("train", "test"):
        single, pairs = digits(split), digit_pairs(split, 50, key=key)
        left, right = np.divmod(pairs.i, 1797)
        assert set(left) | set(right) <= set(single.i)
        first = single.i[0]
        np.testing.assert_array_equal(pairs.x[..., :8], single.x[left - first])
        np.testing.assert_array_equal(pairs.x[..., 8:], single.x[right - first])
        np.testing.assert_array_equal(pairs.y, 10 * single.y[left - first] + single.y[right - first])
        assert pairs.num_classes == 100 and pairs.x.shape == (50, 1, 8, 16)


def test_digit_pairs_depend_on_the_key_only(getkey):
    key = getkey()
    some, more = digit_pairs("train", 20, key=key), digit_pairs("train", 40, key=key)
    np.testing.assert_array_equal(some.i, more.i[:20])
    assert (digit_pairs("train", 20, key=getkey()).i != some.i).any()


def test_digit_pairs_of_a_key_are_pinned():
    assert digit_pairs("train", 3, key=jr.key(0)).i.tolist() == [152165, 500510, 633549]


def test_data_sets_need_no_optional_import():
    program = (
        "import sys, epinet_eqx.data as data; data.digits('train');"
        "print([n for n in ('grain', 'PIL', 'sklearn', 'array_record') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_array_dataset_keeps_its_numbers():
    data = ArrayDataset(np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2]))
    part = data.take(np.array([4, 1]))
    assert part.i.tolist() == [4, 1] and part.y.tolist() == [1, 1]
    batch = part.as_batch()
    np.testing.assert_array_equal(batch.x, [[8.0, 9.0], [2.0, 3.0]])


def test_array_dataset_needs_inputs_and_labels_only():
    data = ArrayDataset(np.zeros((3, 2)), [0, 2, 1])
    assert data.num_classes == 3 and data.i.tolist() == [0, 1, 2] and data.y.dtype == data.i.dtype == np.int32
    assert ArrayDataset(np.zeros((1, 2)), np.array([0], np.uint64)).num_classes == 1
    named = ArrayDataset(np.zeros((2, 2)), [0, 1], i=[7, 5], num_classes=4)
    assert named[0]["i"] == 7 and named.num_classes == 4 and named.take(slice(1, 2)).i.tolist() == [5]


@pytest.mark.parametrize(
    ("i", "words"),
    [
        ([0], "2 integers"),
        ([0, 2**31], "32 bits; got values from 0"),
        ([0.0, 1.0], "2 integers"),
        ([[0, 1]], "2 integers"),
    ],
)
def test_wrong_numbers_are_refused(i, words):
    with pytest.raises(ValueError, match=f"`i` of toys must hold .*{words}"):
        ArrayDataset(np.zeros((2, 3)), [0, 1], i=i, name="toys")


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.zeros((2, 3)), np.array([0, 3]), "labels from 0 to 2; got 3 at position 1"),
        (np.zeros((2, 3)), np.array([-1, 0]), "labels from 0 to 2; got -1 at position 0"),
        (np.zeros((0, 3)), np.zeros(0, int), "at least one example"),
        (np.zeros((3, 3)), np.array([0, 1]), "one entry per label, 2"),
        (np.zeros((2, 3)), np.array([0.0, 1.0]), "vector of integers"),
        (np.zeros((2, 3)), np.array([False, True]), "vector of integers as labels; got bool"),
        (np.zeros((2, 3)), np.array([[0], [1]]), "vector of integers"),
        (np.zeros((2, 3)), np.array([0, 2**32 + 1]), "got 4294967297 at position 1"),
        (np.zeros((2, 3)), np.array([0, 2**64 - 1], np.uint64), "at position 1"),
    ],
)
def test_wrong_arrays_are_refused(x, y, words):
    with pytest.raises(ValueError, match=words):
        ArrayDataset(x, y, num_classes=3, name="toys")


def test_other_wrong_arguments_are_refused(as_user, getkey):
    data = ArrayDataset(np.zeros((2, 3)), np.array([0, 1]), num_classes=2)
    with pytest.raises(ValueError, match="at least one of the 2 examples"):
        data.take(slice(5, 6))
    with pytest.raises(ValueError, match='"train" or "test"; got \'dev\''):
        digits("dev")
    with pytest.raises(ValueError, match="`num_pairs` must be a positive integer; got 0"):
        digit_pairs("train", 0, key=getkey())


def test_normalization_is_the_formula():
    pixels = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    mean, std = np.array([0.5, 0.4, 0.3]), np.array([0.2, 0.3, 0.1])
    result = Normalization(tuple(mean.tolist()), tuple(std.tolist()))(pixels)
    expected = (pixels / 255 - mean[:, None, None]) / std[:, None, None]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_normalization_file_is_read(tmp_path):
    path = tmp_path / "norm.json"
    path.write_text(json.dumps({"mean": [0.5, 0, 1], "std": [0.1, 0.2, 1]}))
    assert Normalization.read(path) == Normalization((0.5, 0.0, 1.0), (0.1, 0.2, 1.0))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("nonsense", "must be a JSON file"),
        ("[1, 2]", "entries `mean` and `std`; got list"),
        ('{"mean": [0.5]}', "entries `mean` and `std`; got mean"),
        ('{"mean": [125.3], "std": [63.0]}', "pixels between 0 and 1; got \\[125.3\\]"),
        ('{"mean": [0.5], "std": [0]}', "above zero; got \\[0\\]"),
        ('{"mean": [0.5, 0.5], "std": [0.1]}', "as many channels as `mean`, 2; got 1"),
        ('{"mean": [NaN], "std": [0.1]}', "got \\[nan\\]"),
        ('{"mean": "0.5", "std": [0.1]}', "got '0.5'"),
    ],
)
def test_wrong_normalization_file_is_named(tmp_path, content, words):
    path = tmp_path / "norm.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"norm.json.*{words}"):
        Normalization.read(path)


def test_normalization_of_other_channels_is_refused(as_user):
    with pytest.raises(ValueError, match="bytes with 3 channels"):
        Normalization((0.5,) * 3, (0.5,) * 3)(np.zeros((2, 1, 4, 4), np.uint8))
