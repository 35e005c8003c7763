"""Which rules were committed before the numbers that they judge; the answer goes to `reproduce/reference/rules.json`.

For each artifact, two commits count: the one that added its first accepted numbers at any tier above smoke, and the one
that added those at the tier that is shown. A rule stood

- "before", if it was there, as it is now, before the first of the two,
- "between", if it was there before the second,
- "with", if the second commit has it,
- "after" otherwise.

Run `python -m reproduce.paper.rule_history` in a clone with its whole history after numbers or rules were committed.
"""

import functools as ft
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from ..accepted import BEST_FIRST, best_accepted
from ..files import write_atomically
from ..paths import REFERENCE
from ..registry import CLAIMS, JUDGED_BY
from .origins import RULES

_ROOT = Path(__file__).parents[2]

# Prints the rules of the tree in the working folder; where the claims lived has changed once.
_PRINT_RULES = """
import json, sys
sys.path[:0] = ["src", "."]
try:
    from reproduce.registry import CLAIMS
except ImportError:
    from reproduce.claims import CLAIMS
print(json.dumps({name: str(claim.rule) for name, claim in CLAIMS.items()}))
"""


@ft.cache
def git(*words: str) -> bytes:
    """Return the output of a git command."""
    return subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, check=True).stdout


def _age(commit: str) -> int:
    """Return the number of commits up to this one."""
    return len(git("rev-list", commit).split())


def commit_that_added(path: str) -> str:
    """Return the commit that first added a file, or its content elsewhere; empty if none did.

    Numbers that move to another tier are as old as they were there.
    """
    found = git("log", "--reverse", "--diff-filter=A", "--format=%H", "--", path).decode().split()
    if not found:
        return ""
    content = git("rev-parse", f"HEAD:{path}").decode().strip()
    same = git("log", "--reverse", f"--find-object={content}", "--format=%H").decode().split()
    return min(found[0], *same[:1], key=_age)


def rules_at(commit: str, known: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the rules by claim that a commit has; none where there was no such code, or none that runs today."""
    if commit not in known:
        with tempfile.TemporaryDirectory() as folder:
            try:
                content = io.BytesIO(git("archive", commit, "reproduce", "src"))
                with tarfile.open(fileobj=content) as archive:
                    archive.extractall(folder, filter="data")
                done = subprocess.run(
                    [sys.executable, "-c", _PRINT_RULES], cwd=folder, capture_output=True, check=True, text=True
                )
                known[commit] = json.loads(done.stdout)
            except subprocess.CalledProcessError:
                known[commit] = {}
    return known[commit]


def stood(name: str, known: dict[str, dict[str, str]]) -> str | None:
    """Return when the rule of a claim was there; nothing for one whose numbers are not committed."""
    artifact, rule = JUDGED_BY[name].id, str(CLAIMS[name].rule)
    paths = [REFERENCE / tier / f"{artifact}.csv" for tier in BEST_FIRST if tier != "smoke"]
    added = {path: commit_that_added(str(path.relative_to(_ROOT))) for path in paths if path.exists()}
    accepted = best_accepted(artifact, REFERENCE)
    if accepted is None or not added.get(accepted.path):
        return None
    first = min((commit for commit in added.values() if commit), key=_age)
    shown = added[accepted.path]
    if rules_at(f"{first}^", known).get(name) == rule:
        return "before"
    if rules_at(f"{shown}^", known).get(name) == rule:
        return "between"
    return "with" if rules_at(shown, known).get(name) == rule else "after"


def main() -> None:
    """Write the file."""
    known: dict[str, dict[str, str]] = {}
    found = {name: {"rule": str(claim.rule), "stood": stood(name, known)} for name, claim in CLAIMS.items()}
    kept = {name: entry for name, entry in found.items() if entry["stood"]}
    write_atomically(REFERENCE / RULES, (json.dumps(kept, indent=1) + "\n").encode())
    print(f"{len(kept)} of {len(CLAIMS)} rules: {REFERENCE / RULES}")


if __name__ == "__main__":
    main()
