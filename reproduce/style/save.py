"""Figures to bytes that are the same each time."""

import io
import logging
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from .palette import MUTED

_METADATA = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}

# It warns of the dates in matplotlib's own fonts, which is out of our hands.
logging.getLogger("fontTools").setLevel(logging.ERROR)


def style_context() -> AbstractContextManager[None]:
    """Return the context in which figures are drawn and saved."""
    return matplotlib.rc_context(fname=Path(__file__).with_name("paper.mplstyle"))


def pictures(figure: Figure, *kinds: str, note: str) -> list[bytes]:
    """Return the figure as files of the kinds "pdf" or "png", with a note in its lower right corner."""
    figure.text(0.998, -0.01, note, ha="right", va="top", fontsize=6.5, color=MUTED, style="italic")
    # Laid out and measured once for all files: that is most of the time of a figure with many panels.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    box = figure.get_tightbbox().padded(0.05)
    found = []
    for kind in kinds:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, bbox_inches=box, metadata=_METADATA[kind])
        found.append(buffer.getvalue())
    return found
