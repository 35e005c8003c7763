"""The uncertainty baselines of the image protocols (Section 6, Appendix G.2), each on a network of the smallest size.

What a baseline is stands here, how it is trained is up to the backend. A new one on the features of a trunk is a
function of this file.
"""

from collections.abc import Callable

from jaxtyping import PRNGKeyArray

from epinet_eqx import AbstractENN
from epinet_eqx.baselines import SNGP, Heteroscedastic
from epinet_eqx.combinators import Marginalized

from .image_agents import Backend


def _sngp(backend: Backend) -> AbstractENN:
    """Return a Gaussian process on the features of a network whose layers are bounded."""
    num_features = backend.seed.protocol.baselines.random_features

    def head(feature_dim: int, key: PRNGKeyArray) -> AbstractENN:
        return SNGP(feature_dim, backend.num_classes, num_features=num_features, key=key)

    return backend.posterior(backend.on_trunk("sngp", head, bounded=True))


def _het(backend: Backend) -> AbstractENN:
    """Return a network with noise in its logits, trained on the log loss of its average prediction."""
    recipe = backend.seed.protocol.baselines

    def head(feature_dim: int, key: PRNGKeyArray) -> AbstractENN:
        inner = Heteroscedastic(feature_dim, backend.num_classes, rank=recipe.het_rank, key=key)
        return Marginalized(inner, recipe.het_samples)

    trained = backend.on_trunk("het", head)
    assert isinstance(trained.enn, Marginalized)
    return trained.with_enn(trained.enn.enn)


BASELINES: dict[str, Callable[[Backend], AbstractENN]] = {
    "dropout": lambda backend: backend.dropout(),
    "mimo": lambda backend: backend.mimo(),
    "sngp": _sngp,
    "het": _het,
}
"""The baselines by name."""
