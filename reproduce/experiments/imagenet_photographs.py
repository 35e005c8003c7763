"""Figure 7 on two photographs that scikit-learn ships: plain and augmented dyadic batches."""

import numpy as np
from jaxtyping import PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.data import AUGMENTED_DYADIC, ArrayDataset, AugmentedDyads

from ..configs.imagenet import PhotographsRun
from .banked import Row
from .image_pictures import KINDS, batch_rows


def _photographs(size: int) -> np.ndarray:
    """Return the photographs as squares, channels first."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    found = []
    for pixels in load_sample_images().images:
        height, width = pixels.shape[:2]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        square = Image.fromarray(pixels[top : top + side, left : left + side])
        found.append(np.asarray(square.resize((size, size), Image.Resampling.BICUBIC)).transpose(2, 0, 1))
    return np.stack(found)


def run(config: PhotographsRun, *, key: PRNGKeyArray) -> list[Row]:
    """Return the pixels of batches of the two photographs, several pairs of which are the same two."""
    x = np.tile(_photographs(config.size), (config.num_batches, 1, 1, 1))
    y = np.tile(np.arange(2, dtype=np.int32), config.num_batches)
    source = ArrayDataset(x, y, np.arange(len(y), dtype=np.int32), 2, "photographs")
    (own,) = named_keys(key, "batches")
    return [
        row
        for kind, transforms in zip(KINDS, ((), AUGMENTED_DYADIC), strict=True)
        for row in batch_rows(AugmentedDyads(source, transforms=transforms, key=own), kind=kind, seed=0)
    ]
