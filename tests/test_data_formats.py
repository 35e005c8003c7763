"""CIFAR and IDX files, whole and damaged; nothing in a pickle is run."""

import gzip
import pathlib
import pickle
import struct

import numpy as np
import pytest

from epinet_eqx.data import cifar, fashion_mnist, read_idx

SHARED = pathlib.Path(__file__).parents[2] / "shared" / "data" / "cifar10"


def make_images(count, num_classes):
    rng = np.random.Generator(np.random.Philox(key=count))
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8), rng.integers(0, num_classes, count)


def write_binary(folder, name, images, *labels):
    folder.mkdir(exist_ok=True)
    columns = [np.asarray(y, np.uint8)[:, None] for y in labels]
    np.concatenate([*columns, images], axis=1).tofile(folder / name)


def python2_stream(images, labels):
    """What Python 2 and an old numpy wrote: byte strings everywhere, protocol 2."""

    def text(content):
        return b"U" + bytes([len(content)]) + content

    data = images.tobytes()
    kind = (
        b"cnumpy\ndtype\nq\x05"
        + text(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    state = (
        b"(K\x01"
        + b"M"
        + struct.pack("<H", len(images))
        + b"M\x00\x0c\x86"
        + kind
        + b"\x89T"
        + struct.pack("<i", len(data))
        + data
        + b"tb"
    )
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85" + text(b"b") + b"\x87R" + state
    )
    numbers = b"](" + b"".join(b"K" + bytes([y]) for y in labels) + b"e"
    return (
        b"\x80\x02}q\x01("
        + text(b"data")
        + array
        + text(b"labels")
        + numbers
        + text(b"batch_label")
        + text(b"x\xff")
        + b"u."
    )


def test_cifar10_binary_and_python_are_the_same(tmp_path):
    binary, python = tmp_path / "cifar-10-batches-bin", tmp_path / "p" / "cifar-10-batches-py"
    python.mkdir(parents=True)
    parts = [make_images(3 + part, 10) for part in range(5)]
    for part, (images, labels) in enumerate(parts):
        write_binary(binary, f"data_batch_{part + 1}.bin", images, labels)
        content = {b"data": images, b"labels": labels.tolist(), b"filenames": ["ä.png"] * len(labels)}
        (python / f"data_batch_{part + 1}").write_bytes(pickle.dumps(content, protocol=min(part + 1, 4)))
    images, labels = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    for data in (
        cifar(tmp_path, "train"),
        cifar(binary, "train"),
        cifar(python, "train"),
        cifar(tmp_path / "p", "train"),
    ):
        np.testing.assert_array_equal(data.x, images.reshape(-1, 3, 32, 32))
        np.testing.assert_array_equal(data.y, labels)
        assert data.i.tolist() == list(range(25)) and data.num_classes == 10


def test_cifar100_has_fine_labels(tmp_path):
    images, fine = make_images(4, 100)
    write_binary(tmp_path / "cifar-100-binary", "test.bin", images, fine // 5, fine)
    folder = tmp_path / "p"
    folder.mkdir()
    content = {"data": images, "fine_labels": fine.tolist(), "coarse_labels": (fine // 5).tolist()}
    (folder / "test").write_bytes(pickle.dumps(content, protocol=4))
    for path in (tmp_path, folder):
        data = cifar(path, "test", name="cifar100")
        np.testing.assert_array_equal(data.x, images.reshape(-1, 3, 32, 32))
        np.testing.assert_array_equal(data.y, fine)


def test_pickle_of_python_2_is_read(tmp_path):
    images, labels = make_images(2, 10)
    (tmp_path / "test_batch").write_bytes(python2_stream(images, labels))
    data = cifar(tmp_path, "test")
    np.testing.assert_array_equal(data.x.reshape(2, -1), images)
    np.testing.assert_array_equal(data.y, labels)


def test_damaged_cifar_files_are_named(tmp_path, as_user):
    images, labels = make_images(3, 10)
    with pytest.raises(FileNotFoundError, match="fetch cifar10"):
        cifar(tmp_path, "test")
    with pytest.raises(FileNotFoundError, match="existing folder"):
        cifar(tmp_path / "absent", "test")
    write_binary(tmp_path, "test_batch.bin", images, labels * 0 + 10)
    with pytest.raises(ValueError, match="test_batch.bin' must hold labels from 0 to 9; got 10 at position 0"):
        cifar(tmp_path, "test")
    (tmp_path / "test_batch.bin").write_bytes(b"\x00" * 5000)
    with pytest.raises(ValueError, match="test_batch.bin' must hold whole records of 3073 bytes; got 5000"):
        cifar(tmp_path, "test")
    (tmp_path / "test_batch.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="test_batch.bin' must hold whole records"):
        cifar(tmp_path, "test")
    write_binary(tmp_path, "data_batch_1.bin", images, labels)
    with pytest.raises(FileNotFoundError, match="data_batch_2.bin' is missing"):
        cifar(tmp_path, "train")
    with pytest.raises(ValueError, match="`name` must be"):
        cifar(tmp_path, "test", name="cifar20")


def test_sheets_are_read(tmp_path):
    from PIL import Image

    pixels = np.arange(64 * 96 * 3, dtype=np.uint32).astype(np.uint8).reshape(64, 96, 3)
    Image.fromarray(pixels).save(tmp_path / "test_00.webp", lossless=True)
    np.savez(tmp_path / "labels.npz", test=np.arange(6))
    data = cifar(tmp_path, "test")
    assert data.y.tolist() == list(range(6))
    np.testing.assert_array_equal(data.x[4].transpose(1, 2, 0), pixels[32:, 32:64])
    np.savez(tmp_path / "labels.npz", test=np.arange(5))
    with pytest.raises(ValueError, match="labels.npz' must have an entry `test` with 6 labels"):
        cifar(tmp_path, "test")
    for labels in (np.arange(6) + 0.5, np.arange(6) + 2**32, np.zeros((6, 1), int)):
        np.savez(tmp_path / "labels.npz", test=labels)
        with pytest.raises(ValueError, match="labels.npz' must h"):
            cifar(tmp_path, "test")
    (tmp_path / "test_00.webp").write_bytes(b"RIFF")
    with pytest.raises(ValueError, match="test_00.webp' is not a whole image"):
        cifar(tmp_path, "test")


@pytest.mark.parametrize("labels", [[1, 2**32 + 1, 1], [1, 2**70, 1], [1, -1, 1], [1, 0.5, 1], [1, True, 1], [1, 1], 3])
def test_wrong_labels_in_pickles_are_named(tmp_path, labels):
    images, _ = make_images(3, 10)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({"data": images, "labels": labels}, protocol=2))
    with pytest.raises(ValueError, match="test_batch' must have an entry `labels`"):
        cifar(tmp_path, "test")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real images are not on this machine")
def test_real_cifar10():
    data = cifar(SHARED, "test")
    assert data.x.shape == (10_000, 3, 32, 32) and np.bincount(data.y).tolist() == [1000] * 10
    assert data.y[:8].tolist() == [3, 8, 8, 0, 6, 6, 1, 6]


def idx(array):
    return b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def test_fashion_mnist_is_read_compressed_or_not(tmp_path):
    images = np.arange(2 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(2, 28, 28)
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([9, 0], np.uint8)))
    data = fashion_mnist(tmp_path, "test")
    np.testing.assert_array_equal(data.x[:, 0], images)
    assert data.y.tolist() == [9, 0]


def test_damaged_idx_files_are_named(tmp_path):
    images, labels = tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "train-labels-idx1-ubyte.gz"
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte or"):
        fashion_mnist(tmp_path, "train")
    images.write_bytes(gzip.compress(idx(np.zeros((2, 28, 28), np.uint8))))
    for content, words in (
        (b"", "must be an IDX file"),
        (b"\x00\x00\x0d\x01", "must be an IDX file"),
        (b"\x00\x00\x08\x02\x00\x00", "must have the sizes of its 2 axes"),
        (b"\x00\x00\x08\xff" + bytes(1020), "must have the sizes of its 255 axes"),
        (b"\x00\x00\x08\x09" + b"\xff" * 32 + bytes(4), "must hold an array of shape"),
        (gzip.compress(idx(np.zeros(2**22, np.uint8))), "must not be compressed more than a hundredfold"),
        (b"\x1f\x8b\x08" + bytes(20), "must be a whole gzip file"),
        (gzip.compress(idx(np.zeros(2, np.uint8)))[:-9], "must be a whole gzip file"),
        (idx(np.zeros(2, np.uint8))[:-1], "must hold an array of shape \\(2,\\); got 1 bytes"),
        (idx(np.zeros(3, np.uint8)), "must have one label per image"),
        (idx(np.array([1, 10], np.uint8)), "must hold labels from 0 to 9; got 10 at position 1"),
    ):
        labels.write_bytes(content)
        with pytest.raises(ValueError, match=f"train-labels-idx1-ubyte.gz' {words}"):
            fashion_mnist(tmp_path, "train")
    labels.write_bytes(idx(np.zeros(0, np.uint8)))
    images.write_bytes(idx(np.zeros((0, 28, 28), np.uint8)))
    with pytest.raises(ValueError, match="must hold at least one example"):
        fashion_mnist(tmp_path, "train")
    assert read_idx(images).shape == (0, 28, 28)
