"""Atomic writes, checksums, and JSON and npz files that are read without running anything in them."""

import contextlib
import errno
import glob
import hashlib
import json
import os
import pathlib
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import safetensors

# The first bytes of PyTorch files: a zip archive, and the magic number of the older format as a pickle.
TORCH_STARTS = (b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
StrPath: TypeAlias = str | os.PathLike[str]
"""A path of the file system."""

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A file unchanged for a day has no writer left.
_ABANDONED_SECONDS = 24 * 3600
_ROW_WORDS = 509
_ROW_BYTES = 8 * _ROW_WORDS
_BLOCK_BYTES = 128 * _ROW_BYTES


def require_folder(name: str, path: StrPath) -> pathlib.Path:
    """Return `path`, which must be an existing folder."""
    if not pathlib.Path(path).is_dir():
        raise FileNotFoundError(f"`{name}` must be an existing folder; got {os.fspath(path)!r}.")
    return pathlib.Path(path)


def require_file(path: StrPath) -> pathlib.Path:
    """Return `path`, which must be an existing file."""
    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"The file {os.fspath(path)!r} is missing.")
    return pathlib.Path(path)


def _delete(path: pathlib.Path) -> None:
    """Delete a file or a folder, as far as possible; the error that led here describes the problem."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _temporary_name(path: pathlib.Path) -> pathlib.Path:
    """Return an unused hidden name beside `path`."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}")


def _forget_killed(path: pathlib.Path, temporary: pathlib.Path) -> None:
    """Delete what killed processes left beside `path`, long before `temporary` was made: by the disk's clock."""
    now = temporary.stat().st_mtime
    for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 12}"):
        with contextlib.suppress(OSError):
            if now - left.stat().st_mtime > _ABANDONED_SECONDS:
                _delete(left)


@contextlib.contextmanager
def atomic_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary file beside `path` that replaces it on success and is deleted on any exception."""
    temporary = _temporary_name(path)
    # Exclusive creation with the user's umask; `mkstemp` would make a file that nobody else may read.
    temporary.touch(exist_ok=False)
    try:
        _forget_killed(path, temporary)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        _delete(temporary)
        # The writer of safetensors neither names the file nor has an exception type for a full disk.
        if isinstance(error, safetensors.SafetensorError) or getattr(error, "errno", None) in _NO_SPACE:
            raise OSError(
                f"{os.fspath(path)!r} could not be written; what was there before is unchanged. {error}"
            ) from error
        raise


@contextlib.contextmanager
def atomic_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary folder beside `path` that is renamed to it on success and deleted on any exception."""
    temporary = _temporary_name(path)
    temporary.mkdir()
    try:
        _forget_killed(path, temporary)
        yield temporary
        os.rename(temporary, path)
    except BaseException:
        _delete(temporary)
        raise


def write_json(path: pathlib.Path, value: Any) -> None:
    """Write a JSON file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_json(path: StrPath) -> Any:
    """Return the content of a JSON file."""
    try:
        return json.loads(require_file(path).read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)!r} must be a JSON file; {error}.") from None


def read_npz(path: StrPath) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file; numpy refuses arrays of objects, which could run code."""
    path = require_file(path)
    try:
        with open(path, "rb") as file, np.load(file) as content:
            arrays = dict(content)
        # NumPy returns the bytes of an entry that does not begin as an array.
        if strange := [name for name, value in arrays.items() if not isinstance(value, np.ndarray)]:
            raise ValueError(f"{strange[0]} is no array")
        return arrays
    # Damaged archives end in a dozen types of errors, of zipfile, zlib, and the parser of numpy's headers.
    except Exception as error:
        raise ValueError(f"{os.fspath(path)!r} must be an npz file of plain arrays, and whole; {error}.") from None


def open_safetensors(path: StrPath) -> Any:
    """Return an opened safetensors file, which validates its header."""
    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"`path` must name an existing file; got {os.fspath(path)!r}.")
    try:
        return safetensors.safe_open(path, framework="flax")
    except safetensors.SafetensorError as error:
        with open(path, "rb") as file:
            is_torch = file.read(16).startswith(TORCH_STARTS)
        reason = f"is damaged: {error}"
        if is_torch:
            reason = "is a PyTorch file: convert it with `python -m epinet_eqx.weights convert SOURCE TARGET`"
        raise ValueError(f"`path` must be a whole safetensors file; {os.fspath(path)!r} {reason}.") from None


def sha256_of(path: pathlib.Path) -> str:
    """Return the SHA-256 hash of a file in hexadecimal: for files that come from elsewhere."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_of(path: pathlib.Path) -> str:
    """Return a checksum of a file with its size: fast, for accidental damage only.

    The file is read as blocks of 128 rows of 509 64-bit words. The checksum is the CRC-32 of the column sums of all
    blocks. Any flipped bit changes a sum; the number of columns is prime, so pages that change places meet other
    columns. One sum per word takes an eighth of the time of a CRC of all bytes, which would take half as long as
    loading the arrays (`nox -s bench -- load`).
    """
    crc, size = 0, 0
    view = memoryview(bytearray(_BLOCK_BYTES))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(view):
            whole = count // _ROW_BYTES * _ROW_BYTES
            words = np.frombuffer(view[:whole], dtype="<u8").reshape(-1, _ROW_WORDS)
            crc = zlib.crc32(words.sum(axis=0, dtype=np.uint64).astype("<u8").tobytes(), crc)
            crc = zlib.crc32(view[whole:count], crc)
            size += count
    return f"{crc:08x}-{size}"


def checksums_of(folder: pathlib.Path) -> dict[str, str]:
    """Return the checksums of all files below a folder, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): checksum_of(path) for path in files}


def _checksum_of_json(values: Mapping[str, Any]) -> str:
    """Return the checksum of JSON values, independent of the order of their names."""
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON values with their own checksum added."""
    return {**values, "checksum": _checksum_of_json(values)}


def is_intact(sealed: Mapping[str, Any]) -> bool:
    """Return whether JSON values match the checksum that `seal` added, or predate checksums."""
    if not sealed.keys() & {"checksum", "files", "sums"}:
        return True
    values = {name: value for name, value in sealed.items() if name != "checksum"}
    return sealed.get("checksum") == _checksum_of_json(values)
