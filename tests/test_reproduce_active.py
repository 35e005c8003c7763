"""Active learning on features of real images, on made-up features."""

import jax.random as jr
import numpy as np
import pytest

from reproduce.configs.decisions import ActiveLearning
from reproduce.experiments import replication_active
from reproduce.inputs import Inputs

pytestmark = pytest.mark.once


@pytest.mark.long
def test_labels_are_chosen_by_features_of_images_that_the_network_has_not_seen(monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 4100).astype(np.int32)
    features = (np.eye(10)[y] @ rng.standard_normal((10, 100)) + rng.standard_normal((4100, 100))).astype(np.float32)
    asked = []

    def stored(piece, *, inputs):
        asked.append(piece)
        return {"features": features, "y": y}

    monkeypatch.setattr(replication_active, "features_of", stored)
    small = {"num_runs": 1, "num_rounds": 1, "num_steps": 20, "num_samples": 5, "num_pool": 100, "num_targets": 5}
    units = ActiveLearning(acquisitions=("uniform",), **small).units()
    found = replication_active.run(list(units.values()), key=jr.key(0), inputs=Inputs())
    assert [piece.images for piece in asked] == ["test"]
    assert [row["labels"] for row in found[0] if row["row"] == "round"] == [10, 20]
    assert all(0 <= row["accuracy"] <= 1 for rows in found for row in rows if row["row"] == "round")
