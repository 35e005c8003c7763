"""Figure 7: images of dyadic batches, and of augmented ones."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..configs.imagenet import Photographs
from ..configs.images import PAIRS
from ..stats import Rows
from ._imagenet import bank_artifact
from ._images import image_artifact

# White space beside and above an image, as shares of its width and height.
_GAP, _LABEL = 0.12, 0.45


def _image(text: str) -> list[list[Any]]:
    """Return an image: gray levels, or colors, which are six hexadecimal digits each."""
    lines = [line.split() for line in text.split("/")]
    if len(lines[0][0]) == 6:
        return [[tuple(bytes.fromhex(color)) for color in line] for line in lines]
    return [[int(level) for level in line] for line in lines]


def _draw_batches(ax: Axes, rows: Rows) -> None:
    """Draw one line of images per batch, each below its label; all in one panel, which is drawn at once."""
    height, width = _shape(rows)
    for row in rows:
        left, top = row["place"] * (1 + _GAP) * width, row["batch"] * (1 + _LABEL) * height
        extent = (left, left + width, top + height, top)
        ax.imshow(_image(row["pixels"]), cmap="gray_r", vmin=0, vmax=99, extent=extent)
        ax.text(left, top - 0.04 * height, f"{row['label']:02d}", fontsize=6, va="bottom")
    lines, columns = (max(row[name] for row in rows) + 1 for name in ("batch", "place"))
    ax.set_xlim(0, columns * (1 + _GAP) * width)
    ax.set_ylim(lines * (1 + _LABEL) * height, -_LABEL * height)
    ax.set_axis_off()


def _shape(rows: Rows) -> tuple[int, int]:
    """Return the height and width of the images."""
    image = _image(rows[0]["pixels"])
    return len(image), len(image[0])


def draw(rows: Rows) -> Figure:
    """Draw plain and augmented batches of the first seed."""
    own = [row for row in rows if row["seed"] == 0]
    height, width = _shape(own)
    lines, columns = (max(row[name] for row in own) + 1 for name in ("batch", "place"))
    share = lines * (1 + _LABEL) * height / (columns * (1 + _GAP) * width)
    figure = Figure(figsize=(6.75, 2 * (6.75 * share + 0.25)))
    titles = {"dyadic": "plain dyadic batches", "augmented": "augmented"}
    for ax, (kind, title) in zip(figure.subplots(2, 1), titles.items(), strict=True):
        _draw_batches(ax, [row for row in own if row["kind"] == kind])
        ax.set_title(title)
    return figure


_FROM_SCRATCH = image_artifact(
    title="Dyadic and augmented dyadic batches",
    label="fig:dyadic_batch",
    protocol=PAIRS,
    dataset="imagenet",
    parts=("grids",),
    minutes={"smoke": 0.5, "laptop": 0.1, "paper": 0},
    data="digit pairs instead of ImageNet",
    tolerances={},
    caption="Each line is a batch of draws from two anchors; the label of an image stands above it.",
    draw=draw,
)

ARTIFACT = bank_artifact(
    _FROM_SCRATCH,
    config=Photographs(),
    run="imagenet_photographs:run",
    minutes=0.1,
    data="the two photographs that scikit-learn ships",
    tolerances={},
    caption=(
        "Each line is a batch of draws from two anchors, both of them photographs; the label of an image stands "
        "above it. Augmented draws are cropped, resized and flipped at random."
    ),
)
