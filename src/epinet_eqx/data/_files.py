"""Files that appear whole or not at all, checksums, and packages that are optional."""

import contextlib
import hashlib
import importlib
import json
import os
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

_BLOCK = 1 << 20


def require_package(name: str, *, extra: str = "data") -> ModuleType:
    """Return an optional package, or say which extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"`{name.split('.')[0]}` is needed here; install it with `pip install 'epinet_eqx[{extra}]'`."
        ) from error


def sha256_of(path: pathlib.Path) -> str:
    """Return the checksum of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def require_folder(name: str, path: str | os.PathLike[str]) -> pathlib.Path:
    """Return `path`, which must be an existing folder."""
    if not pathlib.Path(path).is_dir():
        raise FileNotFoundError(f"`{name}` must be an existing folder; got {os.fspath(path)!r}.")
    return pathlib.Path(path)


def require_file(path: pathlib.Path) -> pathlib.Path:
    """Return `path`, which must be an existing file."""
    if not path.is_file():
        raise FileNotFoundError(f"The file {os.fspath(path)!r} is missing.")
    return path


@contextlib.contextmanager
def new_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Give a temporary name beside `path`; what is written there becomes `path` if nothing is raised, else vanishes."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def new_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Give a temporary folder beside `path`, which becomes `path` if nothing is raised, else vanishes."""
    temporary = pathlib.Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        temporary.chmod(0o755)
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_json(path: pathlib.Path, value: Any) -> None:
    """Write a JSON file, whole or not at all."""
    with new_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file; arrays of objects, which could run code, are refused by numpy."""
    try:
        with open(require_file(path), "rb") as file, np.load(file) as content:
            return dict(content)
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{os.fspath(path)!r} must be an npz file of plain arrays, and whole; {error}.") from None


def read_json(path: pathlib.Path) -> Any:
    """Return the content of a JSON file, or say that it is none."""
    try:
        return json.loads(require_file(path).read_text())
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r} must be a JSON file; {error}.") from None
