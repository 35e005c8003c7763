"""The public names of a package, for the API reference: `from ._x import Y as Y` means that `Y` is public."""

import ast
from typing import Any

import griffe

# What people call first stands first on its page, in this order; everything else follows in the order of the source.
_FIRST = (
    *("attach", "fit", "Draws", "save", "load", "train", "fit_many", "fit_ensemble"),
    *("uncertainty", "marginal_log_probs", "joint_log_probs", "interval", "sample"),
    *("log_losses", "dyadic_log_loss", "marginal_log_loss", "joint_log_loss", "coverage"),
    *("calibrate", "tune_temperature", "pretrained", "MLP", "CrossEntropy", "LogLoss", "SquaredLoss"),
    *("mlp_prior", "Ensemble", "GaussianIndex", "Categorical", "Gaussian", "Tempered", "FeatureBank", "Loader"),
    *("OnlineLearner", "run_bandit", "choose_set", "choose_action", "acquire", "generate_problems", "train_agent"),
)


class Exports(griffe.Extension):
    """Tells the API reference which imported names a package offers."""

    def on_module_members(self, *, node: Any, mod: griffe.Module, agent: Any, **kwargs: Any) -> None:
        """Set the names that a package exports, unless it says so itself."""
        if not isinstance(node, ast.Module) or not mod.is_init_module or mod.exports is not None:
            return
        names = [alias for statement in node.body if isinstance(statement, ast.ImportFrom) for alias in statement.names]
        exports = [alias.name for alias in names if alias.asname == alias.name]
        mod.exports = sorted(exports, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
