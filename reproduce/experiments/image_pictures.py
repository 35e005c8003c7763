"""Images of dyadic batches as rows of results: pixels as text."""

from typing import Any

import numpy as np

from epinet_eqx.data import AugmentedDyads

KINDS = ("dyadic", "augmented")
"""Plain batches, and those whose draws are augmented."""

_NUM_SHOWN = 4
# Larger images are shown with fewer pixels.
_MAX_SHOWN_SIZE = 56


def _as_text(image: np.ndarray) -> str:
    """Return an image as text: gray in 99 steps, or three bytes per pixel in hexadecimal digits."""
    if image.dtype == np.uint8:
        image = image / 255
    step = -(-max(image.shape[1:]) // _MAX_SHOWN_SIZE)
    if step > 1:
        channels, height, width = (size - size % step if axis else size for axis, size in enumerate(image.shape))
        parts = image[:, :height, :width].reshape(channels, height // step, step, width // step, step)
        image = parts.mean(axis=(2, 4))
    image = np.clip(image, 0, 1)
    if len(image) == 1:
        return "/".join(" ".join(map(str, line)) for line in np.rint(99 * image[0]).astype(int))
    pixels = np.rint(255 * image).astype(np.uint8).transpose(1, 2, 0)
    return "/".join(" ".join(pixel.tobytes().hex() for pixel in line) for line in pixels)


def batch_rows(dyads: AugmentedDyads, *, kind: str, seed: int) -> list[dict[str, Any]]:
    """Return a row for each image of some batches."""
    rows = []
    for number in range(min(_NUM_SHOWN, len(dyads))):
        group = dyads[number]
        for place, (image, label) in enumerate(zip(group["x"], group["y"], strict=True)):
            about = {"seed": seed, "kind": kind, "batch": number, "place": place, "label": int(label)}
            rows.append({**about, "pixels": _as_text(image)})
    return rows
