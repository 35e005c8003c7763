"""Megabytes of a core install: the download, and the disk space beyond jax."""

import importlib.metadata
import pathlib
import subprocess
import sys
import tempfile
import venv

from ._measure import Ratio

ROOT = pathlib.Path(__file__).parents[1]

# What `pip install jax` installs: most of the disk space, and not ours to change.
JAX = {"jax", "jaxlib", "ml-dtypes", "numpy", "opt-einsum", "scipy"}


def installed_bytes(folder: pathlib.Path) -> dict[str, int]:
    """Return the size of each distribution in a folder of packages."""
    sizes = {}
    for distribution in importlib.metadata.distributions(path=[str(folder)]):
        paths = [pathlib.Path(str(file.locate())) for file in distribution.files or ()]
        name = distribution.metadata["Name"].lower().replace("_", "-")
        sizes[name] = sum(path.stat().st_size for path in paths if path.is_file())
    return sizes


def main() -> list[Ratio]:
    """Build and install the library without extras in a fresh environment and return its sizes."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wheels, site = folder / "wheels", folder / "site"
        venv.create(folder / "environment", with_pip=True)
        scripts = "Scripts" if sys.platform == "win32" else "bin"
        pip = [folder / "environment" / scripts / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", f"--wheel-dir={wheels}", ROOT], check=True)
        files = sorted(wheels.glob("*.whl"))
        subprocess.run([*pip, "install", "--no-deps", "--no-compile", f"--target={site}", *files], check=True)
        sizes, downloaded = installed_bytes(site), sum(file.stat().st_size for file in files)
    total, added = sum(sizes.values()), sum(size for name, size in sizes.items() if name not in JAX)
    sys.stdout.write(f"     install: {total / 1e6:.0f} MB on the disk, {added / 1e6:.1f} MB of it beyond jax\n")
    return [
        Ratio("install: MB to download, jaxlib included", downloaded / 1e6, 200.0, at_most=True),
        Ratio("install: MB on the disk beyond jax and what it requires", added / 1e6, 200.0, at_most=True),
    ]
