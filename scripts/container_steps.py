"""Run the steps of a Containerfile without a container engine: in an empty folder, with an empty environment.

What it cannot tell is whether the base image has what the steps need beyond Python. `FROM`, `ENTRYPOINT` and `CMD` are
printed, not run; the working directory of the image is a temporary folder.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Containerfile with their arguments; comments go, continued lines are joined."""
    joined = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        yield name.upper(), rest.strip()


def _copy(words: Sequence[str], source: Path, folder: Path) -> None:
    """Copy files and the content of folders as `COPY` does."""
    *origins, target = words
    into_folder = len(origins) > 1 or target.endswith("/")
    for name in origins:
        origin, destination = source / name, folder / target
        if origin.is_dir():
            shutil.copytree(origin, destination, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            destination = destination / origin.name if into_folder else destination
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin, destination)


def run(text: str, *, source: Path, folder: Path, environment: dict[str, str], limit: int | None = None) -> list[str]:
    """Run the steps of a Containerfile, and return those that were run.

    Args:
        text: the Containerfile.
        source: the folder that is copied from.
        folder: the empty folder that stands for the image's working directory.
        environment: the whole environment of the steps.
        limit: how many seconds a step may take.
    """
    arguments: dict[str, str] = {}
    done = []
    for name, rest in instructions(text):
        if name == "ARG":
            key, _, default = rest.partition("=")
            arguments[key] = default
            continue
        if name == "ENV":
            for word in shlex.split(rest):
                key, _, value = word.partition("=")
                for argument, default in arguments.items():
                    value = value.replace(f"${{{argument}}}", default)
                # An empty value means that nothing was asked for.
                environment |= {key: value} if value else {}
            continue
        print(f"{name} {rest}", flush=True)
        if name == "COPY":
            _copy(shlex.split(rest), source, folder)
        elif name == "RUN":
            subprocess.run(["sh", "-c", rest], cwd=folder, env=environment, check=True, timeout=limit)
        elif name not in ("FROM", "WORKDIR", "ENTRYPOINT", "CMD"):
            raise ValueError(f"The Containerfile must hold instructions that this script knows; got {name}.")
        done.append(name)
    return done


def main() -> None:
    """Run `container/Containerfile` of this repository."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="an empty folder to keep the result in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary) / "artifact"
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            sys.exit(f"`--keep` must be an empty folder; got {folder}.")
        (Path(temporary) / "bin").mkdir()
        (Path(temporary) / "bin" / "python").symlink_to(Path(sys.base_prefix, "bin", "python3").resolve())
        # Of this environment, only what finds a registry where there is no direct way to one.
        passed = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "HTTP", "http", "SSL_"))}
        clean = {**passed, "PATH": f"{temporary}/bin:/usr/bin:/bin", "HOME": temporary}
        text = (_ROOT / "container" / "Containerfile").read_text(encoding="utf-8")
        run(text, source=_ROOT, folder=folder, environment=clean)
    print("All steps have run.")


if __name__ == "__main__":
    main()
