"""Figure 7: images of dyadic batches, and of augmented ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure


def _image(text: str) -> list[list[Any]]:
    """Return an image: gray levels, or colors, which are six hexadecimal digits each."""
    lines = [line.split() for line in text.split("/")]
    if len(lines[0][0]) == 6:
        return [[tuple(bytes.fromhex(color)) for color in line] for line in lines]
    return [[int(level) for level in line] for line in lines]


def draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw one line of images per batch, with their labels."""
    own = [row for row in rows if row["seed"] == 0]
    batches = sorted({row["batch"] for row in own})
    places = sorted({row["place"] for row in own})
    figure = Figure(figsize=(6.75, 0.5 * 2 * len(batches) + 0.9))
    upper, lower = figure.subfigures(2, 1)  # pyright: ignore[reportGeneralTypeIssues]
    for part, side, kind in ((upper, "plain dyadic batches", "dyadic"), (lower, "augmented", "augmented")):
        part.suptitle(side, fontsize=9)
        axes = part.subplots(len(batches), len(places), squeeze=False)
        for line, batch in zip(axes, batches, strict=True):
            for ax, place in zip(line, places, strict=True):
                (row,) = [r for r in own if (r["kind"], r["batch"], r["place"]) == (kind, batch, place)]
                ax.imshow(_image(row["pixels"]), cmap="gray_r", vmin=0, vmax=99)
                ax.set_title(f"{row['label']:02d}", fontsize=6, pad=1)
                ax.set_xticks([])
                ax.set_yticks([])
                ax.grid(visible=False)
    return figure
