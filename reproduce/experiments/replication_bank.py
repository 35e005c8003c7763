"""The feature bank of the replication: what trained networks say of images, computed once and kept.

The features are the channel means of the three groups, 16 + 32 + 64; the last 64 are what the logits are linear in.
"""

import functools as ft
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx.data import FeatureBank, Normalization
from epinet_eqx.networks import FixedStatistics, cifar_resnet, with_statistics
from epinet_eqx.weights import load_safetensors_weights

from ..configs.replication import Piece
from ..errors import ReproduceError
from ..files import write_atomically
from ..inputs import Inputs
from ..record import Row
from ..registry import REGISTRY
from .replication_images import images_of

LAST = 64
"""Size of the last features, which come last."""

# At 50 images the activations of a layer stay in the cache of a core.
_BATCH_SIZE = 50
_BATCHES_PER_SHARD = 20
# A piece is whole once it has this file, which says what it took.
_DONE = "done.json"


class PooledGroups(eqx.Module):
    """A network's logits, and the channel means of all its groups."""

    network: FixedStatistics

    def __call__(
        self, x: Float[Array, "channels height width"]
    ) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return logits and features of one image."""
        stages = self.network.stages(x)
        groups = [stages[name] for name in sorted(stages) if name.startswith("group")]
        return stages["output"], jnp.concatenate([jnp.mean(group, axis=(1, 2)) for group in groups])


def _entry(weights: Path, network: str) -> dict[str, Any]:
    """Return what the index of the networks says of one."""
    try:
        index = json.loads((weights / "index.json").read_text(encoding="utf-8"))
        (entry,) = [entry for entry in index if entry["file"] == f"{network}.safetensors"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReproduceError(
            f"`--weights` must be a folder with {network}.safetensors and an index.json that names it once, "
            f"with its depth and normalization; got {weights} ({type(error).__name__})."
        ) from None
    return entry


def load_network(weights: Path, network: str) -> tuple[PooledGroups, Normalization]:
    """Return a trained network, and the normalization of its images."""
    entry = _entry(weights, network)
    # No value of the network that the weights go into is used, so any key will do.
    shapes = eqx.filter_eval_shape(cifar_resnet, entry["depth"], key=jr.key(0))
    network_shapes, state_shapes = shapes
    loaded = load_safetensors_weights(network_shapes, state_shapes, weights / entry["file"], naming="cifar")
    norm = entry["normalize"]
    return PooledGroups(with_statistics(*loaded)), Normalization(tuple(norm["mean"]), tuple(norm["std"]))


@ft.cache
def parameters_of(inputs: Inputs, network: str) -> int:
    """Return the number of parameters of a network."""
    weights = inputs.require("weights", expected="safetensors files of CIFAR ResNets and their index.json")
    loaded, _ = load_network(weights, network)
    trained = eqx.filter(loaded.network.network, eqx.is_inexact_array)
    return sum(leaf.size for leaf in jax.tree.leaves(trained))


def _folders(inputs: Inputs) -> tuple[Path, Path, Path]:
    """Return the folders of the images, the networks and the bank."""
    data = inputs.require("data_dir", expected="CIFAR-10 in its official binary or python form")
    weights = inputs.require("weights", expected="safetensors files of CIFAR ResNets and their index.json")
    if inputs.cache is None:
        raise ReproduceError("`cache` must be given, for the feature bank; got None.")
    return data, weights, inputs.cache


def bank_key() -> PRNGKeyArray:
    """Return the key of all images that are random: every unit that uses the bank uses the same."""
    return jr.key(REGISTRY["rep_bank"].seed)


def ensure(piece: Piece, *, inputs: Inputs) -> Path:
    """Return the folder of a piece, which is computed unless the bank has it.

    Args:
        piece: the piece.
        inputs: the folders.
    """
    data, weights, cache = _folders(inputs)
    # Other weights of the same name are another piece.
    digest = hashlib.sha256((weights / f"{piece.network}.safetensors").read_bytes()).hexdigest()[:12]
    folder = cache / f"{piece.network}-{piece.images}-{piece.num_images}-{digest}"
    if not (folder / _DONE).exists():
        images = images_of(data, piece.images, piece.num_images, key=bank_key())
        embed, normalization = load_network(weights, piece.network)
        start, start_cpu = time.perf_counter(), time.process_time()
        FeatureBank.build(
            embed,
            {"images": images},
            folder,
            normalization=normalization,
            batch_size=min(_BATCH_SIZE, len(images)),
            batches_per_shard=_BATCHES_PER_SHARD,
        )
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
        spent = {"num_images": len(images), "seconds": seconds, "cpu_seconds": cpu_seconds}
        write_atomically(folder / _DONE, (json.dumps(spent) + "\n").encode())
    return folder


def features_of(piece: Piece, *, inputs: Inputs) -> dict[str, np.ndarray]:
    """Return logits, features and labels of a piece, which is computed unless the bank has it."""
    batch = FeatureBank(ensure(piece, inputs=inputs)).as_batch("images")
    found = {"logits": batch.x["logits"], "features": batch.x["features"], "y": batch.y}
    return {name: np.asarray(leaf) for name, leaf in found.items()}


def run(config: Piece, *, key: PRNGKeyArray, inputs: Inputs) -> list[Row]:
    """Return accuracy and speed of one piece of the bank."""
    del key
    found = features_of(config, inputs=inputs)
    spent = json.loads((ensure(config, inputs=inputs) / _DONE).read_text(encoding="utf-8"))
    right = np.argmax(found["logits"], axis=1) == found["y"]
    log_p = jax.nn.log_softmax(jnp.asarray(found["logits"]))[np.arange(len(right)), found["y"]]
    return [
        {
            "network": config.network,
            "depth": int(config.network[6:].split("_")[0]),
            "images": config.images,
            "accuracy": float(right.mean()),
            "marginal": -float(log_p.mean()),
            **spent,
            "images_per_second": spent["num_images"] / spent["seconds"],
        }
    ]
