"""The public names of a package, for the API reference: `from ._x import Y as Y` means that `Y` is public."""

import ast
from typing import Any

import griffe


class Exports(griffe.Extension):
    """Tells the API reference which imported names a package offers."""

    def on_module_members(self, *, node: Any, mod: griffe.Module, agent: Any, **kwargs: Any) -> None:
        """Set the names that a package exports, unless it says so itself."""
        if not isinstance(node, ast.Module) or not mod.is_init_module or mod.exports is not None:
            return
        names = [alias for statement in node.body if isinstance(statement, ast.ImportFrom) for alias in statement.names]
        mod.exports = [alias.name for alias in names if alias.asname == alias.name]
