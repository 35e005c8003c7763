"""The banks that ship: outputs of public networks on ImageNet and CIFAR-10, made anew from folders of images.

    python -m reproduce.banks imagenet IMAGES
    python -m reproduce.banks cifar10 IMAGES NETWORKS

IMAGES of ImageNet holds `val_0.npz`, ... and `train_like.npz`, encoded images with labels; of CIFAR-10, the official
binary files. NETWORKS holds safetensors files and `index.json`. Outputs are kept in `--work`, a file for each network
and split, so an interrupted run goes on.

Of ImageNet there are outputs of augmented dyads, too: all of them of one network, and of each network the
log-probabilities of the labels, which are what an ensemble needs.
"""

import argparse
import concurrent.futures
import functools as ft
import hashlib
import itertools
import json
import pathlib
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from epinet_eqx import named_keys
from epinet_eqx.data import (
    ArrayDataset,
    AugmentedDyads,
    CorruptImageError,
    Decode,
    LinearLayer,
    Normalization,
    PackedBank,
    cifar,
    pack_bank,
    quantization_loss,
)
from epinet_eqx.networks import cifar_resnet, with_statistics
from epinet_eqx.weights import PRETRAINED, load_safetensors_weights, pretrained

BANKS = pathlib.Path(__file__).parent / "banks"
BATCH_SIZE = 8
# What quantization may change a log-loss by; settings are tried from the smallest file on.
MAX_CHANGE = 4.5e-4
SETTINGS = ((32, 256), (64, 256), (128, 256), (256, 256), (256, 4096), (256, 65536))

# Networks of each depth whose features are kept, and how many training images they are kept for: more of the shallow
# ones, which epinets are compared with ensembles on.
NUM_WITH_FEATURES = 2
NUM_CIFAR_TRAIN = {20: 2500, 32: 1000, 44: 1000, 56: 1000}

# Pairs of validation images with ten augmented draws each, and the network whose outputs on them are kept whole.
NUM_AUGMENTED = 140
AUGMENTED_NETWORK = "efficientnet_lite0"
AUGMENTED_TEMPERATURES = (0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.5)

Rows = Mapping[str, np.ndarray]


def imagenet_splits(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Return the files of each split."""
    splits = {"val": sorted(folder.glob("val_*.npz")), "train": sorted(folder.glob("train_like.npz"))}
    missing = [name for name, files in splits.items() if not files]
    if missing:
        raise FileNotFoundError(f"{str(folder)!r} must hold val_*.npz and train_like.npz; {missing} are missing.")
    return splits


def read_images(file: pathlib.Path, *, num_classes: int | None = None) -> tuple[list[bytes], np.ndarray]:
    """Return the encoded images of a file, and their labels.

    Args:
        file: arrays `data`, `offsets` and `labels`.
        num_classes: how many classes there must be an image of; None for any number.
    """
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            data, offsets, labels = content["data"].tobytes(), content["offsets"], content["labels"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{str(file)!r} must hold the arrays data, offsets and labels; got: {error}.") from error
    if len(offsets) != len(labels) + 1 or offsets[0] != 0 or offsets[-1] != len(data) or np.any(np.diff(offsets) <= 0):
        raise ValueError(
            f"{str(file)!r} must have increasing `offsets` from 0 to the size of `data`, one more than `labels`; got "
            f"{len(offsets)} for {len(labels)} labels and {len(data)} bytes."
        )
    missing = np.setdiff1d(np.arange(num_classes or 0), labels)
    if len(missing):
        raise ValueError(
            f"{str(file)!r} must hold an image of each of {num_classes} classes; {len(missing)} are missing, the first "
            f"is {missing[0]}."
        )
    return [data[start:stop] for start, stop in itertools.pairwise(offsets)], labels


def decode(encoded: bytes, name: str = "The image") -> np.ndarray:
    """Return an image as bytes, channels first; gray and CMYK become RGB, others than 224 x 224 are cropped.

    Args:
        encoded: a JPEG, PNG or WebP file.
        name: what an error calls it.
    """
    from PIL import Image

    try:
        pixels = Decode()(encoded, np.random.default_rng(0))
    except CorruptImageError as error:
        raise ValueError(f"{name} {error}; got {len(encoded)} bytes.") from error
    if pixels.shape[1:] == (224, 224):
        return pixels
    image = Image.fromarray(pixels.transpose(1, 2, 0))
    scale = 256 / min(image.size)
    image = image.resize([round(scale * size) for size in image.size], Image.Resampling.BICUBIC)
    left, top = ((size - 224) // 2 for size in image.size)
    return np.asarray(image.crop((left, top, left + 224, top + 224))).transpose(2, 0, 1)


def decoded_batches(
    files: list[pathlib.Path], count: int | None = None, *, chosen: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches of images and labels; the next one is decoded while the last is used.

    Args:
        files: the files.
        count: number of images, the first ones; None for all.
        chosen: numbers of images, in the order in which they are wanted; None for all in their order.
    """
    encoded, names, labels = [], [], []
    for file in files:
        own, y = read_images(file)
        encoded += own
        names += [f"Image {number} of {file.name}" for number in range(len(own))]
        labels.append(y)
    y = np.concatenate(labels)[:count]
    if chosen is not None:
        y, encoded, names = y[chosen], [encoded[number] for number in chosen], [names[number] for number in chosen]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:

        def begin(start: int) -> Iterator[np.ndarray]:
            batch = slice(start, min(start + BATCH_SIZE, len(y)))
            return pool.map(decode, encoded[batch], names[batch])

        starts = range(0, len(y), BATCH_SIZE)
        ahead = [begin(start) for start in starts[:2]]
        for place, start in enumerate(starts):
            if place + 2 < len(starts):
                ahead.append(begin(starts[place + 2]))
            yield np.stack(list(ahead[place])), y[start : start + BATCH_SIZE]
            ahead[place] = iter(())


def augmented_anchors() -> np.ndarray:
    """Return the numbers of the validation images that are augmented; consecutive ones are pairs."""
    (key,) = named_keys(jr.key(0), "augmented pairs")
    return np.asarray(jr.choice(key, 4000, (2 * NUM_AUGMENTED,), replace=False))


def augmented_batches(files: list[pathlib.Path]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the ten draws of each pair, cropped and flipped anew, with their labels."""
    decoded = list(decoded_batches(files, chosen=augmented_anchors()))
    pixels, y = (np.concatenate(parts) for parts in zip(*decoded, strict=True))
    source = ArrayDataset(pixels, y.astype(np.int32), augmented_anchors().astype(np.int32), 1000)
    (key,) = named_keys(jr.key(0), "augmented draws")
    dyads = AugmentedDyads(source, key=key)
    for group in range(len(dyads)):
        yield dyads[group]["x"], dyads[group]["y"]


@eqx.filter_jit
def _embed(network: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return logits and features of a batch."""
    return jax.vmap(network.with_features)(x)


def outputs(network: Any, normalization: Normalization, batches: Iterator[tuple[np.ndarray, np.ndarray]]) -> Rows:
    """Return logits, features and labels."""
    found = []
    for pixels, y in batches:
        logits, features = _embed(network, jnp.asarray(normalization(pixels)))
        found.append({"logits": np.asarray(logits), "features": np.asarray(features), "y": y})
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def _kept(path: pathlib.Path, make: Any) -> Rows:
    """Return arrays from a file, which is made if it is not there."""
    if not path.exists():
        temporary = path.with_name(f".{path.name}.npz")
        np.savez(temporary, **make())
        temporary.replace(path)
    with np.load(path, allow_pickle=False) as content:
        return dict(content)


def sha256_of(path: pathlib.Path) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _pack_smallest(path: pathlib.Path, splits: Mapping[str, Rows], linear: LinearLayer | None) -> dict[str, Any]:
    """Write the smallest bank whose log-losses are the network's, and return its entry in the index."""
    for levels, linear_levels in SETTINGS:
        pack_bank(path, splits, linear=linear, levels=levels, linear_levels=linear_levels, compress=False)
        change = quantization_loss(PackedBank(path), splits)
        if change <= MAX_CHANGE:
            break
    pack_bank(path, splits, linear=linear, levels=levels, linear_levels=linear_levels)
    return {
        "file": path.name,
        "sha256": sha256_of(path),
        "bytes": path.stat().st_size,
        "levels": levels,
        "linear_levels": linear_levels if linear is not None else None,
        "quantization": change,
        "splits": {name: len(rows["y"]) for name, rows in splits.items()},
        "top1": {name: float(np.mean(rows["logits"].argmax(1) == rows["y"])) for name, rows in splits.items()},
    }


def _linear(network: Any) -> LinearLayer:
    """Return the last layer of a network."""
    return LinearLayer(np.asarray(network.linear.weight), np.asarray(network.linear.bias))


def _begun(target: pathlib.Path) -> dict[str, Any]:
    """Return the index of a bank that was begun, without networks whose files are missing or others."""
    if not (target / "bank.json").exists():
        return {}
    networks = json.loads((target / "bank.json").read_text())["networks"]
    files = {name: target / entry["file"] for name, entry in networks.items()}
    return {
        name: entry
        for name, entry in networks.items()
        if files[name].exists() and sha256_of(files[name]) == entry["sha256"]
    }


def make_imagenet(images: pathlib.Path, work: pathlib.Path, target: pathlib.Path) -> None:
    """Write the bank of each network; one that cannot be had is named, and the others go on."""
    for file in itertools.chain(*imagenet_splits(images).values()):
        read_images(file, num_classes=1000)
    target.mkdir(parents=True, exist_ok=True)
    index = _begun(target)
    for name in PRETRAINED:
        if name in index:
            continue
        try:
            network, normalization = pretrained(name)
        except (OSError, ImportError) as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        splits = {
            split: _kept(
                work / f"{name}-{split}.npz",
                lambda files=files: outputs(network, normalization, decoded_batches(files)),  # noqa: B023
            )
            for split, files in imagenet_splits(images).items()
        }
        if name == AUGMENTED_NETWORK:
            splits["augmented"] = _augmented(name, images, work)
        index[name] = _pack_smallest(target / f"{name}.npz", splits, _linear(network))
        print(name, index[name]["bytes"], index[name]["quantization"], flush=True)
        _write_index(
            target,
            index,
            "imagenet IMAGES",
            "ImageNet (ILSVRC2012): 4 validation images of each class as `val`, "
            "one further image of each class, most likely a training image, as `train`; 224 x 224 crops. `augmented`: "
            f"ten cropped and flipped draws of each of {NUM_AUGMENTED} pairs of validation images.",
        )
    if not index:
        raise OSError("No bank was made: no network could be had. What is missing is named above.")
    _pack_augmented(list(index), images, work, target)


def _augmented(name: str, images: pathlib.Path, work: pathlib.Path) -> Rows:
    """Return the outputs of a network on augmented dyads."""

    def make() -> Rows:
        network, normalization = pretrained(name)
        return outputs(network, normalization, augmented_batches(imagenet_splits(images)["val"]))

    return _kept(work / f"{name}-augmented.npz", make)


def _pack_augmented(names: list[str], images: pathlib.Path, work: pathlib.Path, target: pathlib.Path) -> None:
    """Write the log-probabilities of the labels of augmented dyads, of each network and at each temperature."""
    found = []
    for name in names:
        rows = _augmented(name, images, work)
        logits = rows["logits"][None] / np.array(AUGMENTED_TEMPERATURES, np.float32)[:, None, None]
        log_p = jnp.take_along_axis(jax.nn.log_softmax(logits), rows["y"][None, :, None], axis=2)[:, :, 0]
        found.append(np.asarray(log_p, np.float16))
    path = target / "augmented.npz"
    np.savez_compressed(path, log_p=np.stack(found))
    index = json.loads((target / "bank.json").read_text())
    index["augmented"] = {
        "file": path.name,
        "sha256": sha256_of(path),
        "bytes": path.stat().st_size,
        "networks": names,
        "temperatures": AUGMENTED_TEMPERATURES,
    }
    (target / "bank.json").write_text(json.dumps(index, indent=1) + "\n")


def augmented_log_probs() -> dict[tuple[str, float], np.ndarray]:
    """Return the log-probabilities of the labels of augmented dyads, by network and temperature."""
    folder = BANKS / "imagenet"
    entry = json.loads((folder / "bank.json").read_text())["augmented"]
    _check(folder / entry["file"], entry["sha256"])
    with np.load(folder / entry["file"], allow_pickle=False) as content:
        log_p = content["log_p"].astype(np.float32)
    return {
        (name, temperature): log_p[row, place]
        for row, name in enumerate(entry["networks"])
        for place, temperature in enumerate(entry["temperatures"])
    }


def _write_index(target: pathlib.Path, networks: Mapping[str, Any], command: str, images: str) -> None:
    """Write what the folder holds."""
    content = {"images": images, "command": f"python -m reproduce.banks {command}", "networks": networks}
    (target / "bank.json").write_text(json.dumps(content, indent=1) + "\n")


@ft.cache
def _cifar_shapes(depth: int) -> Any:
    """Return the shapes of a network; one per depth, since its places of running values are part of the program."""
    return eqx.filter_eval_shape(lambda: cifar_resnet(depth, key=jr.key(0)))


def cifar_network(folder: pathlib.Path, entry: Mapping[str, Any]) -> tuple[Any, Normalization]:
    """Return a network with its weights from a folder, as its entry in `index.json` says, and its normalization."""
    template, state = _cifar_shapes(entry["depth"])
    loaded = load_safetensors_weights(template, state, folder / entry["file"], naming="cifar")
    normalization = Normalization(tuple(entry["normalize"]["mean"]), tuple(entry["normalize"]["std"]))
    return with_statistics(*loaded), normalization


def make_cifar10(images: pathlib.Path, networks: pathlib.Path, work: pathlib.Path, target: pathlib.Path) -> None:
    """Write the bank of each network: features and last layer of two of each depth, logits of the others."""
    target.mkdir(parents=True, exist_ok=True)
    test, train = cifar(images, "test"), cifar(images, "train")
    index = _begun(target)
    depths: dict[int, int] = {}
    for entry in json.loads((networks / "index.json").read_text()):
        name, depth = entry["file"].removesuffix(".safetensors"), entry["depth"]
        depths[depth] = depths.get(depth, 0) + 1
        whole = depths[depth] <= NUM_WITH_FEATURES
        if name in index:
            continue
        network, normalization = cifar_network(networks, entry)
        count = NUM_CIFAR_TRAIN[depth]
        arrays = {"test": (test.x, test.y), "train": (train.x[:count], train.y[:count])}
        splits = {}
        for split in ("test", "train") if whole else ("test",):
            x, y = arrays[split]
            batches = ((x[start : start + 250], y[start : start + 250]) for start in range(0, len(y), 250))
            splits[split] = _kept(
                work / f"{name}-{split}.npz",
                lambda batches=batches: outputs(network, normalization, batches),  # noqa: B023
            )
        if not whole:
            splits = {split: {"logits": rows["logits"], "y": rows["y"]} for split, rows in splits.items()}
        linear = _linear(network.network) if whole else None  # pyright: ignore[reportAttributeAccessIssue]
        entry = {**_pack_smallest(target / f"{name}.npz", splits, linear), "depth": depth, "source": entry["source"]}
        index[name] = entry
        print(name, entry["bytes"], entry["quantization"], flush=True)
        about = "CIFAR-10: test images and, for some networks, the first training images, as many as `splits` says."
        _write_index(target, index, "cifar10 IMAGES NETWORKS", about)


def read_index(dataset: str) -> dict[str, Any]:
    """Return what the bank of a data set holds, by network."""
    return json.loads((BANKS / dataset / "bank.json").read_text())["networks"]


def _check(path: pathlib.Path, sha256: str) -> None:
    """Raise unless a file has this checksum."""
    found = sha256_of(path)
    if found != sha256:
        raise ValueError(f"{str(path)!r} must have the checksum {sha256}; got {found}.")


def open_shipped(dataset: str, name: str) -> PackedBank:
    """Return a bank that ships, after comparing its checksum."""
    entry = read_index(dataset)[name]
    path = BANKS / dataset / entry["file"]
    _check(path, entry["sha256"])
    return PackedBank(path)


def main() -> None:
    """Make a bank."""
    parser = argparse.ArgumentParser(prog="python -m reproduce.banks", description=__doc__)
    parser.add_argument("dataset", choices=("imagenet", "cifar10"))
    parser.add_argument("images", type=pathlib.Path)
    parser.add_argument("networks", type=pathlib.Path, nargs="?")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("out") / "banks")
    parser.add_argument("--target", type=pathlib.Path, default=BANKS)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    target = arguments.target / arguments.dataset
    if arguments.dataset == "imagenet":
        make_imagenet(arguments.images, arguments.work, target)
    elif arguments.networks is None:
        parser.error("NETWORKS must be given for cifar10.")
    else:
        make_cifar10(arguments.images, arguments.networks, arguments.work, target)


if __name__ == "__main__":
    main()
