"""Small tables of probabilities, drawn as cells whose shade is the probability."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from .palette import INK, shade

Cells = Mapping[tuple[str, str], float]


def draw_cells(
    ax: Axes, cells: Cells, rows: Sequence[str], columns: Sequence[str], *, title: str, y1: str = "", y2: str = ""
) -> None:
    """Draw a table.

    Args:
        ax: where; its axes are taken off.
        cells: probability by row and column.
        rows: names of the rows, from the top.
        columns: names of the columns.
        title: text above.
        y1: label of the rows, at the left.
        y2: label of the columns, at the top.
    """
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            probability = cells[row, column]
            fill, text = shade(probability)
            ax.add_patch(Rectangle((j, -i - 1), 1, 1, facecolor=fill, edgecolor=INK, linewidth=0.9))
            ax.text(j + 0.5, -i - 0.5, f"{probability:.2f}", ha="center", va="center", color=text, fontsize=8)
    for i, row in enumerate(rows):
        ax.text(-0.12, -i - 0.5, row, ha="right", va="center")
    for j, column in enumerate(columns):
        ax.text(j + 0.5, 0.08, column, ha="center", va="bottom")
    ax.text(len(columns) / 2, 0.44, y2, ha="center", va="bottom", fontsize=8)
    ax.text(-0.55, -len(rows) / 2, y1, ha="center", va="center", rotation=90, fontsize=8)
    ax.text(len(columns) / 2, 0.92 if y2 else 0.5, title, ha="center", va="bottom", fontsize=9)
    ax.set_xlim(-0.75, len(columns) + 0.05)
    ax.set_ylim(-len(rows) - 0.05, 1.3)
    ax.set_aspect("equal")
    ax.axis("off")
