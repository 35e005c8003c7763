"""Augmentations, encoded images, folders, records and augmented dyads."""

import io
import json
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


def encoded_by_pillow(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def decoded(encoded):
    return Decode()(encoded, rng_of(0))


def test_sixteen_bits_are_scaled():
    from PIL import Image

    values = np.array([[0, 128, 129, 255], [256, 32768, 65000, 65535]], np.uint16)
    image = Image.fromarray(values)
    # Values are 257 times those of 8 bits; the former reader clipped what is above 255 to white.
    expected = np.broadcast_to(np.rint(values / 257).astype(np.uint8), (3, 2, 4))
    np.testing.assert_array_equal(decoded(encoded_by_pillow(image, "PNG")), expected)
    assert expected.max() == 255 and expected[0, 1, 1] == 128
    transparent = decoded(encoded_by_pillow(image, "PNG", transparency=32768))
    assert transparent[0, 1, 1] == 255 and (np.delete(transparent[0], 5) == np.delete(expected[0], 5)).all()


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_images_are_composited_on_white(kind, mode):
    from PIL import Image

    if (kind, mode) == ("WEBP", "LA"):
        pytest.skip("Pillow writes no gray WebP")
    alpha = np.array([[0, 255], [255, 0]], np.uint8)
    rgba = np.dstack([np.full((2, 2, 3), 10, np.uint8), alpha])
    image = Image.fromarray(rgba)
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    if mode == "P":
        # Color 1 of the palette is transparent, and black where alpha is dropped.
        image = Image.new("P", (2, 2))
        image.putpalette([10, 10, 10, 0, 0, 0])
        image.putdata((alpha == 0).astype(int).ravel().tolist())
        if kind == "WEBP":
            image.info["transparency"] = 1
            image = image.convert("RGBA")
        else:
            options = {"transparency": 1}
    elif mode == "LA":
        image = image.convert("LA")
    result = decoded(encoded_by_pillow(image, kind, **options))
    np.testing.assert_array_equal(result, np.broadcast_to(np.where(alpha == 0, 255, 10), (3, 2, 2)))


def test_half_transparent_pixels_are_halfway_to_white():
    from PIL import Image

    image = Image.new("RGBA", (1, 1), (55, 155, 255, 128))
    np.testing.assert_allclose(decoded(encoded_by_pillow(image, "PNG"))[:, 0, 0], [155, 205, 255], atol=1)


def test_cmyk_and_gray_are_read():
    from PIL import Image

    for mode in ("CMYK", "L", "1"):
        kind = "PNG" if mode == "1" else "JPEG"
        image = Image.new(mode, (4, 4))
        expected = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
        np.testing.assert_allclose(decoded(encoded_by_pillow(image, kind)), expected, atol=2)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n/x 1 def\nshowpage\n%%EOF\n"


@pytest.mark.parametrize("kind", ["TIFF", "BMP", "GIF", "PPM", "ICO", "TGA", "EPS"])
def test_other_formats_are_refused(kind, monkeypatch):
    from PIL import EpsImagePlugin, Image

    def ghostscript(*args, **kwargs):
        raise AssertionError("Ghostscript was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", ghostscript)
    if kind == "EPS":
        content = EPS
    elif kind == "TIFF":
        content = encoded_by_pillow(Image.fromarray(np.full((4, 4), 0.5, np.float32)), kind)
    else:
        content = encoded_by_pillow(Image.new("RGB", (32, 32)), kind)
    with pytest.raises(CorruptImageError, match="not a whole image: no JPEG, PNG, WEBP file"):
        decoded(content)


@pytest.mark.parametrize("transform", [Decode(), CenterCrop(), RandomResizedCrop()])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_the_number_of_pixels_is_bounded_by_the_file(transform, kind, monkeypatch):
    from PIL import Image, ImageFile

    encoded = encoded_by_pillow(Image.new("1" if kind == "PNG" else "L", (8000, 8000)), kind)
    assert 64 * len(encoded) < 8000**2

    def load(self):
        raise AssertionError("the pixels were decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    with pytest.raises(CorruptImageError, match="8000 x 8000 pixels in [0-9]+ bytes are too many"):
        transform(encoded, rng_of(0))


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


EDITS = [
    (lambda index: index["shards"].append(index["shards"][0]), "lists a shard twice"),
    (lambda index: index["shards"].pop(), "must be finished"),
    (lambda index: index["shards"][0].update(file="../x"), "must list shards with `file`, `sha256` and `bytes`"),
    (lambda index: index["shards"][0].pop("bytes"), "must list shards with"),
    (lambda index: index["shards"][0].update(bytes="9"), "must list shards with"),
    (lambda index: index["shards"][0].update(num_examples=3), "lists other shards than"),
    (lambda index: index["shards"][0].update(file="x"), "lists other shards than"),
    (lambda index: index.pop("shards"), "must list shards with"),
    (lambda index: index.update(shards=[3]), "must list shards with"),
    (lambda index: index["spec"].pop("num_examples"), "missing or impossible entries"),
    (lambda index: index["spec"].update(num_examples=10**18), "missing or impossible entries"),
    (lambda index: index["spec"].update(shard_size=0), "missing or impossible entries"),
    (lambda index: index["spec"].update(num_shards=1), "missing or impossible entries"),
    (lambda index: index["spec"].update(num_shards=10**18), "must be finished"),
    (lambda index: index["spec"].update(num_classes="2"), "missing or impossible entries"),
    (lambda index: index.update(spec=[]), "must be the index"),
]


@pytest.mark.parametrize("number", range(len(EDITS)))
def test_edited_indices_of_records_are_refused(tmp_path, number):
    change, words = EDITS[number]
    source = ImageFolder(write_folder(tmp_path / "images", [3, 2]))
    write_records(source, tmp_path / "records", num_classes=2, shard_size=2)
    path = tmp_path / "records" / "records.json"
    index = json.loads(path.read_text())
    # As an older version wrote it.
    index.pop("checksum", None)
    path.write_text(json.dumps(index))
    assert len(RecordSource(tmp_path / "records")) == 5
    change(index)
    path.write_text(json.dumps(index))
    with pytest.raises(ValueError, match=words):
        RecordSource(tmp_path / "records")


def test_an_index_has_a_checksum_and_records_have_labels_of_their_classes(tmp_path):
    source = ImageFolder(write_folder(tmp_path / "images", [1, 2]))
    write_records(source, tmp_path / "records", num_classes=2)
    path = tmp_path / "records" / "records.json"
    index = json.loads(path.read_text())
    index["spec"]["num_classes"] = 1
    path.write_text(json.dumps(index))
    with pytest.raises(ValueError, match="was changed after it was written"):
        RecordSource(tmp_path / "records")
    index.pop("checksum", None)
    path.write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must hold labels from 0 to 0; got 1 in number 2"):
        RecordSource(tmp_path / "records")[2]


def test_damage_in_the_last_block_of_records_is_named(tmp_path):
    # The reader met damage in the last block as soon as it was made, and ended in a RuntimeError of C++.
    source = ImageFolder(write_folder(tmp_path / "images", [2]))
    write_records(source, tmp_path / "records", num_classes=1)
    (shard,) = (tmp_path / "records").glob("*.arrayrecord")
    content = bytearray(shard.read_bytes())
    last = (len(content) - 1) // 65536 * 65536
    content[last : last + 24] = bytes(24)
    shard.write_bytes(content)
    with pytest.raises(ValueError, match="must be a whole ArrayRecord file"):
        RecordSource(tmp_path / "records")[0]


class Relabeled:
    """A source with one label or number replaced."""

    def __init__(self, source, **changes):
        self.source, self.changes = source, changes

    def __len__(self):
        return len(self.source)

    def __getitem__(self, position):
        return {**self.source[position], **self.changes}

    def describe(self, position):
        return self.source.describe(position)


@pytest.mark.parametrize("name", ["y", "i"])
@pytest.mark.parametrize("value", [0.5, np.float32(1), 2**31, np.int64(2**32)])
def test_labels_and_numbers_are_never_rounded_or_wrapped(tmp_path, name, value, getkey):
    folder = Relabeled(ImageFolder(write_folder(tmp_path / "images", [2])), **{name: value})
    with pytest.raises(ValueError, match="must hold"):
        write_records(folder, tmp_path / "records", num_classes=1)
    images = Relabeled(ArrayDataset(np.zeros((4, 1, 8, 8), np.uint8), np.zeros(4, int)), **{name: value})
    with pytest.raises(ValueError, match="must hold"):
        AugmentedDyads(images, key=getkey())[0]


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
