"""Augmentations, encoded images, folders, records and augmented dyads."""

import io
import os
import pathlib
import shutil

import numpy as np
import pytest

from epinet_eqx.data import (
    ArrayDataset,
    AugmentedDyads,
    CenterCrop,
    CorruptImageError,
    CropAndResize,
    Cutout,
    Decode,
    ImageFolder,
    Normalization,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    RecordSource,
    write_records,
)


def rng_of(number):
    return np.random.Generator(np.random.Philox(key=number))


def encode(pixels, kind="JPEG"):
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def write_folder(root, counts, size=(12, 10)):
    """Write a folder per class; returns the folder."""
    for label, count in enumerate(counts):
        folder = root / f"n{label:08d}"
        folder.mkdir(parents=True)
        for number in range(count):
            pixels = rng_of(100 * label + number).integers(0, 256, (*size, 3), dtype=np.uint8)
            (folder / f"{number}.JPEG").write_bytes(encode(pixels))
    return root


IMAGE = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(3, 8, 8)


def test_flip_is_its_own_inverse_and_happens_half_of_the_time():
    flips = [RandomFlip()(IMAGE, rng_of(n)) for n in range(200)]
    flipped = [not np.array_equal(image, IMAGE) for image in flips]
    assert 70 < sum(flipped) < 130
    assert all(np.array_equal(image[:, :, ::-1], IMAGE) for image, f in zip(flips, flipped, strict=True) if f)


def test_crop_shifts_and_fills_with_zeros():
    crops = {RandomCrop(padding=1)(IMAGE + 1, rng_of(n)).tobytes() for n in range(200)}
    padded = np.pad(IMAGE + 1, ((0, 0), (1, 1), (1, 1)))
    windows = {padded[:, a : a + 8, b : b + 8].tobytes() for a in range(3) for b in range(3)}
    assert crops == windows


def test_cutout_is_a_square_of_zeros_half_of_the_time():
    zeros = [(Cutout(4)(IMAGE + 1, rng_of(n)) == 0).sum(axis=(1, 2)) for n in range(200)]
    assert all((z == z[0]).all() for z in zeros)
    assert 70 < sum(z[0] > 0 for z in zeros) < 130
    # A center in the corner leaves a quarter of the square, or a ninth of it less.
    assert {4, 16} <= {int(z[0]) for z in zeros} and max(z[0] for z in zeros) == 16
    assert IMAGE[0, 0, 1] == 1


def test_crop_and_resize_keeps_linear_images_linear():
    # Bilinear interpolation is exact for linear functions, away from the border where it holds its breath.
    ramp = np.broadcast_to(np.arange(16, dtype=np.float32)[None, :, None], (1, 16, 16))
    result = CropAndResize(margin=4)(ramp, rng_of(0))
    assert result.shape == ramp.shape and result.dtype == np.float32
    np.testing.assert_allclose(np.diff(result[0, 1:-1, 0]), 12 / 16, rtol=1e-5)
    np.testing.assert_array_equal(CropAndResize()(np.full((3, 9, 7), 200, np.uint8), rng_of(1)), 200)


def test_windows_of_the_random_resized_crop_have_the_areas_and_ratios_asked_for():
    crop = RandomResizedCrop(8)
    rng = rng_of(0)
    boxes = np.array([crop.window(500, 375, rng) for _ in range(500)])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert boxes.min() >= 0 and (boxes[:, 2] <= 500).all() and (boxes[:, 3] <= 375).all()
    areas, ratios = widths * heights / (500 * 375), widths / heights
    assert 0.078 < areas.min() < 0.12 and areas.max() > 0.85 and 0.4 < areas.mean() < 0.6
    assert 0.74 < ratios.min() < 0.8 and 1.25 < ratios.max() < 1.35
    # Nothing fits into a line; the largest window of an allowed ratio is taken.
    assert crop.window(1000, 30, rng) == (480, 0, 520, 30)


def test_center_crop_cuts_the_center():
    pixels = np.zeros((64, 128, 3), np.uint8)
    pixels[4:60, 36:92] = 255
    result = CenterCrop(size=56, border=8)(encode(pixels, "PNG"), rng_of(0))
    assert result.shape == (3, 56, 56) and result.min() == 255


def test_decode_returns_the_pixels_with_three_channels():
    pixels = rng_of(3).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(Decode()(encode(pixels, "PNG"), rng_of(0)), pixels.transpose(2, 0, 1))
    assert Decode()(encode(pixels[:, :, 0], "PNG"), rng_of(0)).shape == (3, 5, 7)


@pytest.mark.parametrize("content", [b"", b"not an image", encode(np.zeros((99, 99, 3), np.uint8))[:-300]])
def test_corrupt_images_are_found(content):
    with pytest.raises(CorruptImageError, match="not a whole image"):
        Decode()(content, rng_of(0))


def test_wrong_augmentations_are_refused(as_user):
    for make in (
        lambda: RandomCrop(0),
        lambda: Cutout(0),
        lambda: Cutout(2, probability=2.0),
        lambda: CropAndResize(0),
        lambda: CropAndResize(8)(IMAGE, rng_of(0)),
        lambda: RandomResizedCrop(0),
        lambda: RandomResizedCrop(area=(0.5, 0.1)),
        lambda: RandomResizedCrop(ratio=(0.0, 1.0)),
        lambda: CenterCrop(border=-1),
    ):
        with pytest.raises(ValueError, match="must"):
            make()


def test_folder_numbers_classes_and_files_by_name(tmp_path):
    source = ImageFolder(write_folder(tmp_path, [2, 1, 3]))
    assert len(source) == 6 and source.num_classes == 3
    assert [int(source[n]["y"]) for n in range(6)] == [0, 0, 1, 2, 2, 2]
    assert [int(source[n]["i"]) for n in range(6)] == list(range(6))
    assert source.describe(2) == str(tmp_path / "n00000001" / "0.JPEG")
    assert source[2]["x"] == pathlib.Path(source.describe(2)).read_bytes()


def test_wrong_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="existing folder"):
        ImageFolder(tmp_path / "absent")
    with pytest.raises(ValueError, match="one folder per class"):
        ImageFolder(tmp_path)
    write_folder(tmp_path, [1, 1])
    with pytest.raises(FileNotFoundError, match="n00000002' is missing"):
        ImageFolder(tmp_path, classes=["n00000000", "n00000001", "n00000002"])
    with pytest.raises(ValueError, match="'n00000001' is not among them"):
        ImageFolder(tmp_path, classes=["n00000000"])
    (tmp_path / "n00000003").mkdir()
    with pytest.raises(ValueError, match="n00000003' holds none"):
        ImageFolder(tmp_path)


def test_records_are_the_folder(tmp_path):
    source = ImageFolder(write_folder(tmp_path / "images", [3, 2]))
    write_records(source, tmp_path / "records", num_classes=2, shard_size=2)
    records = RecordSource(tmp_path / "records", verify=True)
    assert len(records) == 5 and records.num_classes == 2
    for position in range(5):
        assert records[position] == source[position]
        assert records.describe(position).startswith(source.describe(position))


class Flaky:
    """A source that fails at one position, once."""

    def __init__(self, source, position):
        self.source, self.position, self.read = source, position, []

    def __len__(self):
        return len(self.source)

    def __getitem__(self, position):
        if position == self.position:
            raise KeyboardInterrupt
        self.read.append(position)
        return self.source[position]

    def describe(self, position):
        return self.source.describe(position)


def test_conversion_goes_on_where_it_ended_and_heals_damage(tmp_path):
    source = ImageFolder(write_folder(tmp_path / "images", [3, 2]))
    path = tmp_path / "records"
    flaky = Flaky(source, 3)
    with pytest.raises(KeyboardInterrupt):
        write_records(flaky, path, num_classes=2, shard_size=2)
    assert sorted(os.listdir(path)) == ["records.json", "shard-00000-of-00003.arrayrecord"]
    with pytest.raises(ValueError, match="must be finished; .* has 1 of 3 shards"):
        RecordSource(path)
    again = Flaky(source, -1)
    write_records(again, path, num_classes=2, shard_size=2)
    assert again.read == [2, 3, 4]
    with pytest.raises(ValueError, match="other values of shard_size"):
        write_records(source, path, num_classes=2, shard_size=3)
    # One byte of the middle shard is turned.
    shard = path / "shard-00001-of-00003.arrayrecord"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ValueError, match="shard-00001-of-00003.arrayrecord' must have the checksum"):
        RecordSource(path, verify=True)
    healing = Flaky(source, -1)
    write_records(healing, path, num_classes=2, shard_size=2)
    assert healing.read == [2, 3]
    assert RecordSource(path, verify=True)[2] == source[2]


def test_damaged_records_are_named(tmp_path):
    source = ImageFolder(write_folder(tmp_path / "images", [2]))
    path = tmp_path / "records"
    with pytest.raises(FileNotFoundError, match="records.json' is missing"):
        RecordSource(path)
    with pytest.raises(ValueError, match="0.JPEG' must hold labels from 0 to -1; got 0"):
        write_records(source, path, num_classes=0)
    shutil.rmtree(path)
    write_records(source, path, num_classes=1)
    (shard,) = path.glob("*.arrayrecord")
    content = shard.read_bytes()
    shard.write_bytes(content[:-100])
    with pytest.raises(ValueError, match="arrayrecord' must have .* bytes, and is truncated"):
        RecordSource(path)
    damaged = bytearray(content)
    at = content.index(source[1]["x"][:50]) + 40
    damaged[at] ^= 255
    shard.write_bytes(damaged)
    with pytest.raises(ValueError, match="arrayrecord' must"):
        [RecordSource(path)[n] for n in range(2)]
    shard.unlink()
    with pytest.raises(ValueError, match="arrayrecord' is missing"):
        RecordSource(path)
    (path / "records.json").write_text("{}")
    with pytest.raises(ValueError, match="records.json' must be the index"):
        RecordSource(path)


def test_dyads_are_draws_of_two_anchors(getkey):
    x = np.broadcast_to(np.arange(7, dtype=np.uint8)[:, None, None, None], (7, 1, 8, 8))
    source = ArrayDataset(x, np.arange(7) % 3, num_classes=3)
    key = getkey()
    dyads = AugmentedDyads(source, tau=200, key=key)
    assert len(dyads) == 3
    for group in range(3):
        drawn = dyads[group]
        # A constant image stays the same by crops and flips, so it tells which anchor was drawn.
        np.testing.assert_array_equal(drawn["x"][:, 0, 3, 3], drawn["i"])
        np.testing.assert_array_equal(drawn["y"], drawn["i"] % 3)
        assert set(drawn["i"]) == {2 * group, 2 * group + 1} and 70 < (drawn["i"] % 2).sum() < 130
    with pytest.raises(IndexError, match="from 0 to 2; got 3"):
        dyads[3]
    small = AugmentedDyads(source, tau=2, key=key)
    assert small.as_batch(1).i.tolist() == [*small[1]["i"], *small[2]["i"]]


def test_dyads_are_augmented_independently_and_reproducibly(tmp_path, getkey):
    source = ImageFolder(write_folder(tmp_path, [2, 2], size=(40, 30)))
    key = getkey()
    normalization = Normalization((0.5,) * 3, (0.25,) * 3)

    def make(key):
        return AugmentedDyads(source, decode=(CenterCrop(16),), normalization=normalization, key=key)

    first = make(key)[1]
    assert first["x"].shape == (10, 3, 16, 16) and first["x"].dtype == np.float32
    assert len({image.tobytes() for image in first["x"]}) >= 9
    np.testing.assert_array_equal(first["x"], make(key)[1]["x"])
    assert not np.array_equal(first["x"], make(getkey())[1]["x"])
    pathlib.Path(source.describe(3)).write_bytes(b"broken")
    with pytest.raises(CorruptImageError, match="n00000001/1.JPEG' is not a whole image"):
        make(key)[1]
