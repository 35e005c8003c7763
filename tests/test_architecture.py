"""The rules of docs/design.md and CONTRIBUTING.md that can be read off the source text.

Each rule is a function from the source to its violations. It is applied to the package, where it must find nothing, and
to snippets that break it, where it must find something.
"""

import ast
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

import epinet_eqx

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "epinet_eqx"

OPTIONAL = {
    "array_record",
    "blackjax",
    "botorch",
    "flax",
    "gpytorch",
    "grain",
    "h5py",
    "haiku",
    "huggingface_hub",
    "matplotlib",
    "orbax",
    "sklearn",
    "torch",
    "PIL",
}
OPTIONAL |= {"tensorboardX", "wandb"}
NETWORK = {"aiohttp", "ftplib", "http", "httpx", "huggingface_hub", "requests", "socket", "ssl", "urllib"}
PICKLES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
SPEAKING = {"datetime", "logging", "time"}
GENERATORS = {"PRNGKey", "RandomState", "default_rng", "key", "seed"}


def read_layers(text: str) -> list[str]:
    """Return the names in the first column of the table of layers, top to bottom and left to right."""
    table = re.search(r"^## Layers.*?^```\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert table is not None
    return [name.rstrip("/") for row in table[1].splitlines() for name in re.split(r"\s{2,}", row)[0].split()]


def read_package() -> dict[str, ast.Module]:
    """Return the parsed modules by dotted name; a package has the name of its `__init__`."""
    files = {path.relative_to(PACKAGE.parent): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {".".join(name.with_suffix("").parts): ast.parse(path.read_text()) for name, path in files.items()}


def parse(**sources: str) -> dict[str, ast.Module]:
    """Return a package of these sources; two underscores in a name stand for the dot."""
    return {f"epinet_eqx.{name.replace('__', '.', 1)}": ast.parse(source) for name, source in sources.items()}


LAYERS = read_layers((ROOT / "docs" / "design.md").read_text())
MODULES = read_package()


def imported(module: str, tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """Yield what is imported anywhere in `tree`, as parts of an absolute name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            base = [*above, *(node.module.split(".") if node.module else [])]
            yield from ((*base, alias.name) for alias in node.names)


def upward_imports(modules: dict[str, ast.Module]) -> list[str]:
    """Return the imports of a layer that does not stand above the importing one, or of the package's root."""
    found = []
    for module, tree in modules.items():
        own = module.split(".")[1]
        for parts in imported(module, tree):
            if own == "__init__" or parts[0] != "epinet_eqx" or parts[1:2] in ((own,), ("__version__",)):
                continue
            if len(parts) < 2 or parts[1] not in LAYERS or LAYERS.index(parts[1]) > LAYERS.index(own):
                found.append(f"{module} imports {'.'.join(parts)}")
    return found


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name, and the generic class of a subscript."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def members(node: ast.ClassDef) -> dict[str, bool]:
    """Return what the body of a class defines besides annotated fields, and whether each is abstract."""
    found = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            found[item.name] = any("abstract" in last_name(decorator) for decorator in item.decorator_list)
        elif isinstance(item, ast.Assign):
            found |= {last_name(target): False for target in item.targets}
    return found


def overridden_methods(modules: dict[str, ast.Module]) -> list[str]:
    """Return the concrete methods that a class redefines, the subclasses of final classes, and ambiguous names."""
    nodes = [node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    classes = {node.name: node for node in nodes}
    found = [f"{node.name} is defined twice" for node in nodes if classes[node.name] is not node]

    def ancestors(node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        for base in (classes[name] for name in map(last_name, node.bases) if name in classes):
            yield base
            yield from ancestors(base)

    for node in nodes:
        for base in ancestors(node):
            if not base.name.lstrip("_").startswith("Abstract"):
                found.append(f"{node.name} inherits from {base.name}, which is final")
            # Equinox runs the `__check_init__` of every class, so a second one adds to the first.
            concrete = {name for name, abstract in members(base).items() if not abstract} - {"__check_init__"}
            found += [f"{node.name} overrides {base.name}.{name}" for name in concrete & set(members(node))]
    return found


def is_integer(node: ast.expr | None) -> bool:
    """Return whether an expression is an integer literal, with or without a sign."""
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) is int


def integer_seeds(modules: dict[str, ast.Module]) -> list[str]:
    """Return the random generators made from an integer literal, untyped keys, and seeds with a default."""
    found = []
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (name := last_name(node.func)) in GENERATORS:
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                if name == "PRNGKey" or any(map(is_integer, values)):
                    found.append(f"{module}:{node.lineno} {ast.unparse(node)}")
            elif isinstance(node, ast.arguments):
                arguments = [*node.posonlyargs, *node.args]
                defaults = [*zip(arguments[::-1], node.defaults[::-1], strict=False)]
                defaults += zip(node.kwonlyargs, node.kw_defaults, strict=True)
                found += [f"{module}: {a.arg}" for a, value in defaults if "seed" in a.arg and is_integer(value)]
    return found


def pickles(modules: dict[str, ast.Module]) -> list[str]:
    """Return the uses of Python's own serialization, which runs code when it loads."""
    found = [
        f"{m} imports {parts[0]}" for m, tree in modules.items() for parts in imported(m, tree) if parts[0] in PICKLES
    ]
    keywords = [(m, node) for m, tree in modules.items() for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    return found + [f"{m}: {ast.unparse(node)}" for m, node in keywords if node.arg == "allow_pickle"]


def eager_imports(modules: dict[str, ast.Module]) -> list[str]:
    """Return the imports of network modules and optional packages that run as soon as the module is imported."""
    found = []
    for module, tree in modules.items():
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        delayed = {id(n) for f in ast.walk(tree) if isinstance(f, functions) for n in ast.walk(f)}
        eager = ast.Module([n for n in ast.walk(tree) if isinstance(n, ast.stmt) and id(n) not in delayed], [])
        found += [f"{module} imports {p[0]}" for p in imported(module, eager) if p[0] in NETWORK | OPTIONAL]
    return found


def side_effects(modules: dict[str, ast.Module]) -> list[str]:
    """Return what prints, logs, reads the clock or reads the environment."""
    found = []
    for module, tree in modules.items():
        found += [f"{module} imports {parts[0]}" for parts in imported(module, tree) if parts[0] in SPEAKING]
        for node in ast.walk(tree):
            called = last_name(node.func) if isinstance(node, ast.Call) else ""
            if called in ("print", "getenv") or (isinstance(node, ast.Attribute) and node.attr == "environ"):
                found.append(f"{module}:{node.lineno} {ast.unparse(node)}")
    return found


RULES = (upward_imports, overridden_methods, integer_seeds, pickles, eager_imports, side_effects)

BASE = "class AbstractA(Module):\n @abstractmethod\n def f(self): ...\n def g(self): return 1\n"
VIOLATIONS = {
    "import from a lower layer": (upward_imports, parse(indices___a="from ..losses import CrossEntropy")),
    "import from a lower layer, absolute": (upward_imports, parse(_tree="import epinet_eqx.indices")),
    "import within the first row against its order": (
        upward_imports,
        parse(_checks="from ._init import glorot_uniform"),
    ),
    "import from the root": (upward_imports, parse(losses___a="from .. import attach")),
    "import inside a function": (upward_imports, parse(_enn="def f():\n from .epinet import attach")),
    "override": (overridden_methods, parse(_enn=BASE + "class B(AbstractA):\n def g(self): return 2")),
    "override by assignment": (overridden_methods, parse(_enn=BASE + "class B(AbstractA):\n g = 2")),
    "override from afar": (
        overridden_methods,
        parse(
            _enn=BASE + "class AbstractB(AbstractA): pass", _save="class C(_enn.AbstractB[T]):\n def g(self): return 2"
        ),
    ),
    "final class inherited": (overridden_methods, parse(_enn="class A(Module): pass\nclass B(A): pass")),
    "one name for two classes": (overridden_methods, parse(_enn="class A: pass", _save="class A: pass")),
    "seed": (integer_seeds, parse(_enn="key = jr.key(0)")),
    "negative seed by keyword": (integer_seeds, parse(_enn="key = jax.random.key(seed=-1)")),
    "untyped key": (integer_seeds, parse(_enn="key = jax.random.PRNGKey(number)")),
    "numpy seed": (integer_seeds, parse(_enn="rng = np.random.default_rng(7)")),
    "default seed": (integer_seeds, parse(_enn="def f(x, *, seed: int = 0): pass")),
    "default seed, positional": (integer_seeds, parse(_enn="def f(x, seed=0): pass")),
    "pickle": (pickles, parse(_save="def f():\n import pickle")),
    "pickled numpy arrays": (pickles, parse(_save="np.load(path, allow_pickle=True)")),
    "network at import": (eager_imports, parse(_save="from urllib.request import urlopen")),
    "optional package at import": (eager_imports, parse(_save="try:\n import matplotlib.pyplot as plt\nexcept: pass")),
    "print": (side_effects, parse(_save="print('saved')")),
    "clock": (side_effects, parse(_save="from time import time")),
    "environment": (side_effects, parse(_save="os.environ['HOME']")),
}
ALLOWED = {
    "import from an upper layer": (upward_imports, parse(losses___a="from ..indices import GaussianIndex\nimport jax")),
    "import from the own layer": (upward_imports, parse(losses___a="from ._b import B")),
    "abstract method defined": (overridden_methods, parse(_enn=BASE + "class B(AbstractA):\n def f(self): return 2")),
    "key from an argument": (
        integer_seeds,
        parse(_enn="def f(seed: int, *, key): return jr.key(seed), jr.split(key, 2)"),
    ),
    "optional package when used": (eager_imports, parse(_save="def f():\n import matplotlib")),
}


def test_layers_of_the_design_are_those_of_the_package():
    assert sorted(LAYERS) == sorted({module.split(".")[1] for module in MODULES} - {"__init__"})


@pytest.mark.parametrize("rule", RULES)
def test_package_follows(rule):
    assert rule(MODULES) == []


@pytest.mark.parametrize("name", VIOLATIONS)
def test_rule_finds(name):
    rule, modules = VIOLATIONS[name]
    assert len(rule(modules)) >= 1


@pytest.mark.parametrize("name", ALLOWED)
def test_rule_allows(name):
    rule, modules = ALLOWED[name]
    assert rule(modules) == []


def printed_by(program: str) -> list[list[str]]:
    """Return the words that a program prints, by line, in a fresh interpreter without the settings of the tests."""
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    return [line.split() for line in output.splitlines()]


def test_packages_are_light():
    # The number of devices can only be set as long as no backend has started, that is, as long as nothing has been
    # computed.
    devices, loaded = printed_by(
        "import sys, jax, epinet_eqx; [getattr(epinet_eqx, name) for name in dir(epinet_eqx)];"
        "jax.config.update('jax_num_cpu_devices', 3); print(jax.device_count());"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    assert devices == ["3"]
    assert "epinet_eqx" in loaded
    assert OPTIONAL.isdisjoint(loaded)


def test_packages_are_imported_when_they_are_asked_for():
    before, after = printed_by(
        "import sys, epinet_eqx as epi; names = ('testbed', 'decisions', 'scale', 'training');"
        "print('loaded', *(name for name in names if f'epinet_eqx.{name}' in sys.modules));"
        "print(epi.fit is epi.training.fit, epi.testbed.__name__)"
    )
    assert before == ["loaded"]
    assert after == ["True", "epinet_eqx.testbed"]


def test_root_has_every_package_and_no_other_name():
    packages = {module.split(".")[1] for module in MODULES if module.endswith(".__init__")} - {"__init__"}
    assert packages <= set(dir(epinet_eqx))
    with pytest.raises(AttributeError, match="module 'epinet_eqx' has no attribute 'epinets'"):
        epinet_eqx.epinets  # noqa: B018
