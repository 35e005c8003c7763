"""A release, or a rehearsal of one: `nox -s release -- --dry-run`.

It checks that version, changelog, citation and tag agree and that nothing is uncommitted, and lists the files of
`out/release` with their checksums. Without `--dry-run` it makes the tag; pushing it is left to people.
"""

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def version(root: Path) -> str:
    """Return the version that the source names."""
    text = (root / "src" / "epinet_eqx" / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def _git(root: Path, *words: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def obstacles(root: Path) -> list[str]:
    """Return what must be done before a release, one sentence each."""
    found = []
    wanted = version(root)
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(wanted)}\b", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md must have a section `## {wanted}`; rename `## Unreleased`.")
    cited = re.findall(r"^version: (.+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    if cited != [wanted]:
        found.append(f"CITATION.cff must name version {wanted}; got {', '.join(cited)}.")
    if _git(root, "tag", "--list", f"v{wanted}"):
        found.append(f"The version must be a new one; there is a tag v{wanted}.")
    if _git(root, "status", "--porcelain"):
        found.append("All changes must be committed.")
    return found


def checksums(folder: Path) -> list[str]:
    """Write SHA256SUMS of the files in a folder, as `sha256sum --check` reads it, and return its lines."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "SHA256SUMS"]
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}" for path in files
    ]
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lines


def main() -> None:
    """Say what a release would do, and make the tag unless it is a rehearsal."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="make no tag")
    parser.add_argument("--files", type=Path, default=_ROOT / "out" / "release", metavar="DIR", help="what is released")
    options = parser.parse_args()
    found = obstacles(_ROOT)
    lines = checksums(options.files) if options.files.is_dir() else []
    kinds = {"a wheel": ".whl", "an sdist": ".tar.gz", "the paper": ".pdf", "the documentation": ".zip"}
    found += [
        f"{options.files} must hold {words}."
        for words, suffix in kinds.items()
        if not any(line.endswith(suffix) for line in lines)
    ]
    print("\n".join([f"Version {version(_ROOT)} of commit {_git(_ROOT, 'rev-parse', 'HEAD')}:", *lines, ""]))
    for sentence in found:
        print(f"- {sentence}")
    tag = f"v{version(_ROOT)}"
    if options.dry_run:
        print(f"A release would make the tag {tag}; `git push origin {tag}` would then publish wheel and sdist.")
        return
    if found:
        sys.exit("Nothing was done.")
    _git(_ROOT, "tag", "--annotate", tag, "--message", f"epinet_eqx {version(_ROOT)}")
    print(f"The tag {tag} is made; `git push origin {tag}` publishes wheel and sdist.")


if __name__ == "__main__":
    main()
