"""Active learning on stored features of real images: how many labels the head of a frozen network needs."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..configs.decisions import ActiveOf
from ..configs.replication import BankConfig, Piece
from ..inputs import Inputs
from ..record import Row
from .active import groups as groups
from .active import run_on
from .replication_bank import LAST, features_of

# Test images, which the network was not trained on, in their order.
_NUM_IMAGES = 4000


def run(configs: Sequence[ActiveOf], *, key: PRNGKeyArray, inputs: Inputs) -> list[list[Row]]:
    """Return for each rule the accuracy of each round of each run, and the number of labels that each run needs."""
    bank = BankConfig()
    piece = Piece(network=bank.networks[0].names("test")[0], images="test", num_images=bank.num_test)
    stored = features_of(piece, inputs=inputs)
    features = stored["features"][:_NUM_IMAGES, -LAST:]
    standardized = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6)
    return run_on(configs, jnp.asarray(standardized), jnp.asarray(stored["y"][:_NUM_IMAGES]), key=key)
