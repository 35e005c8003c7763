"""Checksums of what a checkpoint consists of."""

import json
import pathlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

_BLOCK_BYTES = 2**19
_ROW_WORDS = 512
_ROW_BYTES = 8 * _ROW_WORDS


def checksum_of(path: pathlib.Path) -> str:
    """Return the checksum of a file, and its size.

    It is the CRC of the sums of the rows and columns of the file as a matrix of 64-bit words: any single flip changes
    one of each, and rows that trade places change their order. A CRC of all bytes takes as long as half of reading
    the arrays themselves, sums a fifth of that.
    """
    columns = np.zeros(_ROW_WORDS, dtype=np.uint64)
    crc, size = 0, 0
    view = memoryview(bytearray(_BLOCK_BYTES))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(view):
            whole = count // _ROW_BYTES * _ROW_BYTES
            words = np.frombuffer(view[:whole], dtype="<u8").reshape(-1, _ROW_WORDS)
            crc = zlib.crc32(words.sum(axis=1, dtype=np.uint64).astype("<u8").tobytes(), crc)
            columns += words.sum(axis=0, dtype=np.uint64)
            crc = zlib.crc32(view[whole:count], crc)
            size += count
    return f"{zlib.crc32(columns.astype('<u8').tobytes(), crc):08x}-{size}"


def checksums_of(folder: pathlib.Path) -> dict[str, str]:
    """Return the checksums of all files of a folder by their paths in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): checksum_of(path) for path in files}


def _checksum_of_json(values: Mapping[str, Any]) -> str:
    """Return the checksum of JSON values, whatever the order of their names."""
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON values with their own checksum."""
    return {**values, "checksum": _checksum_of_json(values)}


def is_intact(sealed: Mapping[str, Any]) -> bool:
    """Return whether JSON values are those that were sealed, or those of an older version without checksums."""
    if "checksum" not in sealed and "files" not in sealed:
        return True
    values = {name: value for name, value in sealed.items() if name != "checksum"}
    return sealed.get("checksum") == _checksum_of_json(values)
