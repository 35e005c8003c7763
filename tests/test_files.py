"""Atomic writes, checksums and readers of the root module `_files`."""

import json
import os
import pathlib
import sys
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from epinet_eqx import _files, data, save, training

resource = pytest.importorskip("resource") if sys.platform == "linux" else None


def test_an_atomic_file_is_new_or_untouched(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), _files.atomic_file(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["x"]
    with _files.atomic_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["x"]


def test_an_atomic_folder_is_whole_or_absent(tmp_path):
    path = tmp_path / "x"
    with pytest.raises(OSError, match="full"), _files.atomic_folder(path) as temporary:
        (temporary / "a").write_text("half")
        raise OSError("full")
    assert os.listdir(tmp_path) == []
    with _files.atomic_folder(path) as temporary:
        (temporary / "a").write_text("whole")
    assert (path / "a").read_text() == "whole" and os.listdir(tmp_path) == ["x"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.parametrize("writer", ["save", "bank", "convert", "jsonl", "csv"])
def test_a_full_disk_gets_a_sentence_and_leaves_what_was_there(writer, tmp_path):
    path, rows = tmp_path / "x", {"logits": np.ones((9000, 3)), "y": np.arange(9000) % 3}
    np.savez(tmp_path / "rows.npz", features=rows["logits"], logits=rows["logits"], labels=rows["y"])
    names = {"jsonl": training.JsonlMetrics, "csv": training.CsvMetrics}
    if writer in names:
        metrics = names[writer](path)
        metrics.start(0)

    def write():
        if writer == "save":
            save(path, {"a": jnp.ones(9000)})
        elif writer == "bank":
            data.import_features({"train": tmp_path / "rows.npz"}, tmp_path / "bank")
        elif writer == "convert":
            with _files.atomic_file(path) as temporary:
                safetensors.numpy.save_file(rows, temporary)
        else:
            for step in range(9000):
                metrics.log(step, {"loss": 0.5})

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="could not be written"):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    if writer in names:
        metrics.close()
    assert not [left.name for left in tmp_path.rglob(".*")]


def test_what_a_killed_writer_left_is_deleted_a_day_later(tmp_path):
    old, new, other = (tmp_path / name for name in (".x.0123456789ab", ".x.ba9876543210", ".x.y"))
    for path in (old, new, other):
        path.write_text("half")
    day = 25 * 3600
    for path in (old, other):
        os.utime(path, (path.stat().st_atime - day, path.stat().st_mtime - day))
    _files.write_json(tmp_path / "x", 1)
    assert sorted(os.listdir(tmp_path)) == [new.name, other.name, "x"]
    left = tmp_path / ".x.000000000000"
    (left / "inner").mkdir(parents=True)
    os.utime(left, (0, 0))
    (tmp_path / "x").unlink()
    with _files.atomic_folder(tmp_path / "x"):
        assert not left.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_permissions_follow_the_umask(tmp_path):
    umask = os.umask(0o027)
    try:
        _files.write_json(tmp_path / "x", 1)
        with _files.atomic_folder(tmp_path / "y"):
            pass
    finally:
        os.umask(umask)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in "xy"]
    assert modes == [0o640, 0o750]


@pytest.mark.parametrize("size", [0, 1, 4071, 4072, 4073, 128 * 4072 - 1, 128 * 4072 + 4096])
def test_the_checksum_sees_every_bit_and_the_size(tmp_path, size):
    path = tmp_path / "x"
    content = np.random.Generator(np.random.Philox(key=size)).bytes(size)
    path.write_bytes(content)
    whole = _files.checksum_of(path)
    assert whole.endswith(f"-{size}")
    for at in {0, size // 2, size - 1} if size else ():
        for bit in range(8):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
            assert _files.checksum_of(path) != whole
    path.write_bytes(content + bytes(1))
    assert _files.checksum_of(path) != whole


def test_the_checksum_sees_the_order_of_words_and_rows(tmp_path):
    words = np.arange(4 * 512, dtype="<u8").reshape(4, 512)
    checksums = set()
    # Words, pages of 4 KiB, and neighboring words.
    for order in (words, words[::-1], words[:, ::-1], words[[0, 2, 1, 3]], words.reshape(-1, 2)[:, ::-1]):
        order.tofile(tmp_path / "x")
        checksums.add(_files.checksum_of(tmp_path / "x"))
    assert len(checksums) == 5


def test_sealed_values_are_intact_until_they_are_changed():
    sealed = _files.seal({"a": 1, "sums": {"x": "1"}})
    assert _files.is_intact(json.loads(json.dumps(sealed))) and _files.is_intact({"a": 1})
    assert not _files.is_intact({**sealed, "a": 2})
    assert not _files.is_intact({name: sealed[name] for name in ("a", "sums")})


def test_what_is_no_array_in_an_npz_file_is_an_error(tmp_path):
    # NumPy returns the bytes of such an entry.
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("labels.npy", b"text")
    with pytest.raises(ValueError, match="must be an npz file of plain arrays, and whole; labels is no array."):
        _files.read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_broken_json_is_an_error(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="x.json' must be a JSON file"):
        _files.read_json(path)
    with pytest.raises(FileNotFoundError, match="y.json' is missing"):
        _files.read_json(pathlib.Path(tmp_path / "y.json"))
