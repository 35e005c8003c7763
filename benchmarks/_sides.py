"""Two source trees side by side, each in its own process that runs programs on request."""

import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]


def _git(*args: str) -> bytes:
    """Return what git prints."""
    return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, check=True).stdout


def merge_base(branch: str | None) -> str:
    """Return the commit that the current one shares with a branch; by default with main, the remote one if known."""
    known = _git("for-each-ref", "--format=%(refname:short)").decode().split()
    branch = branch or next((name for name in ("origin/main", "main") if name in known), "HEAD")
    return _git("merge-base", "HEAD", branch).decode().strip()


def extract(commit: str, folder: pathlib.Path) -> pathlib.Path:
    """Write the source tree of a commit to a folder; the repository and its worktrees are left alone."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit, "src"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


class Worker:
    """A process with the package from one source tree; the programs are those of this tree for all of them."""

    def __init__(self, source: pathlib.Path):
        """Start the process, with `epinet_eqx` from the folder `source`."""
        path = os.pathsep.join([str(source), str(ROOT)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._worker", str(source)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: str, *args: Any) -> None:
        """Ask, and do not wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([question, *args]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the next answer: `{"answer": ...}` or `{"error": ...}`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The worker ended with exit code {self._process.wait()} instead of an answer.")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
