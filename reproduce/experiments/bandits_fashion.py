"""Regret of agents in a bandit of Fashion-MNIST, whose images are in a folder."""

import functools as ft
from collections.abc import Sequence
from pathlib import Path

from jaxtyping import PRNGKeyArray

from epinet_eqx.data import fashion_mnist

from ..configs.decisions import BanditOf
from ..errors import ReproduceError
from ..inputs import Inputs
from ..record import Row
from .bandits import Place, image_bandit, place_of_images, run_in
from .bandits import groups as groups

_FOLDER = "fashion-mnist"
_EXPECTED = (
    f"a folder {_FOLDER} with the four IDX files of Fashion-MNIST, or these themselves; Debian's package "
    "dataset-fashion-mnist puts them into /usr/share/datasets"
)


@ft.cache
def fashion_place(folder: Path, pooling: int) -> Place:
    """Return the place of the bandit of all test images."""
    images = fashion_mnist(folder, "test")
    return place_of_images(image_bandit(images.x[:, 0].astype(float), images.y, pooling))


def run(configs: Sequence[BanditOf], *, key: PRNGKeyArray, inputs: Inputs) -> list[list[Row]]:
    """Return the regret curve of one agent, and the regret of each of its runs."""
    (config,) = configs
    folder = inputs.require("data_dir", expected=_EXPECTED)
    # Beside other data sets it has a folder of its own.
    own = folder / _FOLDER
    try:
        place = fashion_place(own if own.is_dir() else folder, config.size.pooling)
    except (OSError, ValueError) as error:
        raise ReproduceError(f"fashion_mnist cannot be read from {folder}: {error} Expected {_EXPECTED}.") from error
    return [run_in(place, config, key=key)]
