"""Pickles read as data: nothing in them runs, and no file takes long or crashes the reader."""

import os
import pickle
import struct

import numpy as np
import pytest

from epinet_eqx._pickled import read_pickled_arrays


class Evil:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("hidden", [False, True])
def test_pickle_cannot_run_code(tmp_path, protocol, hidden):
    victim = tmp_path / "victim"
    evil = Evil(os.mkdir, str(victim))
    content = {"data": [np.zeros(3, np.uint8), evil]} if hidden else evil
    path = tmp_path / "evil"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(ValueError, match="evil' must be a pickled dictionary of plain arrays.*was not loaded"):
        read_pickled_arrays(path)
    assert not victim.exists()
    # The same bytes would have done it.
    pickle.loads(path.read_bytes())
    assert victim.exists()


@pytest.mark.parametrize(
    "content",
    [np.array([object()]), {"x": np.zeros(2, "O")}, {"x": np.dtype}, {"x": np.zeros(2, [("a", "u1")])}, [1, 2], {1: 2}],
)
def test_other_pickles_are_refused(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match="other' must be a pickled dictionary"):
        read_pickled_arrays(path)


def test_damaged_pickles_are_refused(tmp_path):
    whole = pickle.dumps({"data": np.zeros((2, 3), np.uint8), "labels": [1, 2]})
    path = tmp_path / "damaged"
    for stop in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:stop])
        with pytest.raises(ValueError, match="damaged' must be"):
            read_pickled_arrays(path)


def test_arrays_numbers_and_lists_of_them_are_read(tmp_path):
    rng = np.random.Generator(np.random.Philox(key=1))
    kernel, bias = rng.normal(size=(3, 2)).astype(np.float32), np.asfortranarray(rng.normal(size=(2, 4)))
    content = {"conv": [kernel, bias], "pair": (kernel, bias), "names": ["a", b"b"], "n": 3, "x": 0.5, "e": np.zeros(0)}
    for protocol in range(2, 5):
        (tmp_path / "x").write_bytes(pickle.dumps(content, protocol=protocol))
        found = read_pickled_arrays(tmp_path / "x")
        assert list(found) == list(content) and found["names"] == ["a", b"b"] and (found["n"], found["x"]) == (3, 0.5)
        for name in ("conv", "pair"):
            for a, b in zip(found[name], content[name], strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)
        assert found["e"].shape == (0,)


def nested_tuples(depth):
    """(), then each tuple holds the one before it twice: of depth 40, its hash takes 2**40 steps."""
    return b")" + b"q\x00h\x00\x86" * depth


def array_stream(shape, dtype=b"u1", content=b"abcdef"):
    """A pickle of {"x": array} with any shape and content."""
    sizes = b"(" + b"".join(b"J" + struct.pack("<i", size) for size in shape) + b"t"
    kind = b"cnumpy\ndtype\n(U" + bytes([len(dtype)]) + dtype + b"K\x00K\x01tR(K\x03U\x01|NNNK\x00K\x00K\x00tb"
    state = b"(K\x01" + sizes + kind + b"\x89U" + bytes([len(content)]) + content + b"tb"
    return b"\x80\x02}U\x01xcnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00U\x01btR" + state + b"s."


HOSTILE = {
    # A 340-byte file of this kind kept the former reader busy for good.
    "nested tuples as a key": b"\x80\x02}" + nested_tuples(40) + b"K\x01s.",
    "nested tuples in a call": nested_tuples(40) + b"K\x01R.",
    "nested tuples as a value": b"\x80\x02}K\x00" + nested_tuples(40) + b"s.",
    "nested tuples as a shape": b"\x80\x02}U\x01xcnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
    + b"K\x00U\x01btR(K\x01"
    + nested_tuples(40)
    + b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR\x89U\x01atbs.",
    # Half a megabyte of it overflowed the C stack.
    "deep tuple as a key": b"\x80\x02})" + b"\x85" * 530_000 + b"K\x01s.",
    "deep tuple as a value": b"\x80\x02}K\x00)" + b"\x85" * 530_000 + b"s.",
    "deep lists": b"\x80\x02}K\x00" + b"]" * 260_000 + b"a" * 259_999 + b"s.",
    "list in itself": b"\x80\x02}K\x00]q\x00h\x00as.",
    "marks": b"(" * 530_000 + b".",
    # Each tuple copied the whole stack of a machine that looked for its mark there.
    "tuples on a full stack": b"N" * 180_000 + b"(t" * 180_000 + b".",
    "many instructions": b"]" + b"Na" * 300_000 + b".",
    "much out of little": b"X"
    + struct.pack("<i", 500_000)
    + b"a" * 500_000
    + b"q\x00"
    + b"c_codecs\nencode\nq\x01X\x06\x00\x00\x00latin1q\x02"
    + b"h\x01h\x00h\x02\x86R" * 10_000
    + b".",
    "a string of 2**62 bytes": b"\x8e" + struct.pack("<q", 2**62) + b"a.",
    "negative shape": array_stream((-1, 3)),
    "shape of two negatives": array_stream((-2, -3)),
    "large shape": array_stream((2**31 - 1,) * 20),
    "too many axes": array_stream((1,) * 65),
    "objects": array_stream((6,), b"O"),
    "other byte order": array_stream((6,), b">i4"),
    "wrong escape": b"S'\\y'\n.",
    "text": b"hello",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_a_sentence(tmp_path, name):
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(ValueError, match="hostile' must be a pickled dictionary of plain arrays; it holds .*, and was"):
        read_pickled_arrays(path)


def test_the_streams_above_are_right_but_for_what_they_show(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(array_stream((2, 3)))
    np.testing.assert_array_equal(read_pickled_arrays(path)["x"], np.frombuffer(b"abcdef", np.uint8).reshape(2, 3))
