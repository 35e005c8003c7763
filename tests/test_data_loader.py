"""Pipelines: order, processes, checkpoints, workers, corrupt images."""

import json
import pathlib
import subprocess
import sys

import jax.random as jr
import numpy as np
import pytest
from test_data_images import write_folder

from epinet_eqx.data import (
    CIFAR10_TRAIN,
    ArrayDataset,
    CorruptImageError,
    Decode,
    ImageFolder,
    Loader,
    Normalization,
    RandomFlip,
)
from epinet_eqx.losses import Batch

pytestmark = pytest.mark.once


def make_source(count=10):
    x = np.random.Generator(np.random.Philox(key=1)).integers(0, 256, (count, 3, 8, 8), dtype=np.uint8)
    return ArrayDataset(x, np.arange(count) % 3, num_classes=3)


def collect(loader, count=None):
    """Return the arrays of some batches, or of all."""
    with loader:
        return [loader.next_arrays() for _ in range(loader.num_batches if count is None else count)]


def assert_same(some, others):
    assert len(some) == len(others)
    for a, b in zip(some, others, strict=True):
        assert a.keys() == b.keys() == {"x", "y", "i"}
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_every_epoch_has_every_example_once_in_another_order(getkey):
    source = make_source()
    batches = collect(Loader(source, batch_size=5, num_epochs=3, key=getkey()))
    orders = np.concatenate([batch["i"] for batch in batches]).reshape(3, 10)
    assert (np.sort(orders, axis=1) == np.arange(10)).all()
    assert len({tuple(order) for order in orders}) == 3
    for batch in batches:
        np.testing.assert_array_equal(batch["x"], source.x[batch["i"]])
        np.testing.assert_array_equal(batch["y"], source.y[batch["i"]])


def test_evaluation_is_in_order_and_complete():
    batches = collect(Loader(make_source(), batch_size=4, shuffle=False, num_epochs=1, drop_remainder=False, key=None))
    assert [len(batch["y"]) for batch in batches] == [4, 4, 2]
    assert np.concatenate([batch["i"] for batch in batches]).tolist() == list(range(10))


@pytest.mark.parametrize("process_count", [2, 4])
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_global_batch_does_not_depend_on_the_number_of_processes(getkey, process_count, drop_remainder):
    key = getkey()

    def make(index, count):
        return Loader(
            make_source(12),
            batch_size=8,
            transforms=CIFAR10_TRAIN,
            num_epochs=3,
            drop_remainder=drop_remainder,
            process_index=index,
            process_count=count,
            key=key,
        )

    parts = [collect(make(index, process_count)) for index in range(process_count)]
    together = [
        {name: np.concatenate([p[name] for p in batch]) for name in "xyi"} for batch in zip(*parts, strict=True)
    ]
    assert_same(together, collect(make(0, 1)))


def test_augmentation_differs_between_epochs_and_examples(getkey):
    same = ArrayDataset(np.broadcast_to(make_source(1).x, (10, 3, 8, 8)), np.zeros(10, int), num_classes=1)
    batches = collect(Loader(same, batch_size=10, transforms=CIFAR10_TRAIN, num_epochs=4, key=getkey()))
    images = [image.tobytes() for batch in batches for image in batch["x"]]
    assert len(set(images)) > 30


def test_state_is_one_number_and_fits_any_loader_of_the_same_batches(getkey):
    key = getkey()

    def make(**options):
        return Loader(make_source(), batch_size=4, transforms=CIFAR10_TRAIN, **{"key": key} | options)

    whole = collect(make(), 9)
    loader = make()
    assert_same(collect(loader, 5), whole[:5])
    state = json.loads(json.dumps(loader.state()))
    assert_same(collect(loader, 4), whole[5:])
    for options in ({}, {"num_threads": 2}):
        other = make(**options)
        other.restore(state)
        assert_same(collect(other, 4), whole[5:])
    for different in (make(key=getkey()), make(shuffle=False), Loader(make_source(), batch_size=5, key=key)):
        with pytest.raises(ValueError, match="`state` must be that of a loader with"):
            different.restore(state)


def test_loader_yields_batches_for_fit(getkey):
    normalization = Normalization((0.5,) * 3, (0.5,) * 3)
    with Loader(make_source(), batch_size=4, num_epochs=1, normalization=normalization, key=getkey()) as loader:
        batches = list(loader)
    assert len(batches) == 2 and all(isinstance(batch, Batch) for batch in batches)
    assert batches[0].x.dtype == np.float32 and abs(batches[0].x).max() <= 1


def test_threads_change_nothing_and_errors_come_through(tmp_path, getkey):
    source, key = ImageFolder(write_folder(tmp_path, [3, 3])), getkey()

    def make(**options):
        return Loader(source, batch_size=3, transforms=(Decode(), RandomFlip()), num_epochs=2, key=key, **options)

    whole = collect(make())
    assert_same(collect(make(num_threads=3)), whole)
    pathlib.Path(source.describe(4)).write_bytes(b"broken")
    for options in ({}, {"num_threads": 2}):
        with pytest.raises(CorruptImageError, match="n00000001/1.JPEG' is not a whole image"):
            collect(make(**options))


def test_corrupt_images_are_skipped_and_counted_if_wished(tmp_path, getkey):
    source, key = ImageFolder(write_folder(tmp_path, [3, 3])), getkey()
    for position in (2, 3):
        content = pathlib.Path(source.describe(position)).read_bytes()
        pathlib.Path(source.describe(position)).write_bytes(content[: len(content) // 2])

    def make(**options):
        options = {"process_count": 1, "process_index": 0} | options
        return Loader(source, batch_size=6, transforms=(Decode(),), num_epochs=2, skip_corrupt=True, key=key, **options)

    loader = make()
    batches = collect(loader)
    assert loader.skipped == {2, 3}
    assert [name[-16:] for name in loader.skipped_names] == ["n00000000/2.JPEG", "n00000001/0.JPEG"]
    # Both are replaced by the next one, so every epoch has it three times.
    assert [sorted(batch["i"]) for batch in batches] == [[0, 1, 4, 4, 4, 5]] * 2
    parts = [collect(make(process_index=p, process_count=2)) for p in range(2)]
    together = [
        {name: np.concatenate([p[name] for p in batch]) for name in "xyi"} for batch in zip(*parts, strict=True)
    ]
    assert_same(together, batches)
    for position in range(6):
        pathlib.Path(source.describe(position)).write_bytes(b"")
    with pytest.raises(CorruptImageError, match="all other images"):
        collect(make())


PROGRAM = """
import sys, multiprocessing, jax.random as jr, numpy as np
from epinet_eqx.data import Decode, ImageFolder, Loader, RandomFlip

if __name__ == "__main__":
    source = ImageFolder(sys.argv[1])
    make = lambda **options: Loader(source, batch_size=2, transforms=(Decode(), RandomFlip()), key=jr.key(0), **options)
    serial = make()
    expected = [serial.next_arrays() for _ in range(7)]
    with make(num_workers=2) as loader:
        loader.restore({**loader.state(), "next_batch": 2})
        for batch in expected[2:]:
            found = loader.next_arrays()
            assert all(np.array_equal(batch[name], found[name]) for name in "xyi")
        assert len(multiprocessing.active_children()) >= 2
    assert multiprocessing.active_children() == []
    print("closed")
"""


def test_workers_change_nothing_and_close_cleanly(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    write_folder(tmp_path / "images", [2, 3])
    command = [sys.executable, script, tmp_path / "images"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "`batch_size` must be a positive integer"),
        ({"batch_size": 11, "num_epochs": 1}, "`batch_size` must be at most the number of examples, 10; got 11"),
        ({"process_count": 3}, "`batch_size` must be divisible by the 3 processes; got 4"),
        ({"process_index": 1}, "`process_index` must be from 0 to 0; got 1"),
        ({"num_workers": -1}, "`num_workers` must not be negative"),
        ({"num_epochs": 0}, "`num_epochs` must be a positive integer"),
        ({"buffer_size": 0}, "`buffer_size` must be a positive integer"),
        ({"key": None}, "`key` must be given to shuffle"),
        (
            {"process_count": 4, "num_epochs": 1, "drop_remainder": False},
            "4 processes cannot share a last batch of 2 examples",
        ),
    ],
)
def test_wrong_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Loader(make_source(), **{"batch_size": 4, "key": jr.key(0)} | options)


def test_encoded_images_must_be_decoded(tmp_path, getkey):
    source = ImageFolder(write_folder(tmp_path, [2]))
    with pytest.raises(ValueError, match="`transforms` must begin with one that decodes"):
        collect(Loader(source, batch_size=2, key=getkey()), 1)


def test_empty_source_is_refused(getkey):
    class Empty:
        def __len__(self):
            return 0

        def __getitem__(self, position):
            raise IndexError

        def describe(self, position):
            return ""

    with pytest.raises(ValueError, match="`source` must hold at least one example"):
        Loader(Empty(), batch_size=1, key=getkey())
