"""Figures to bytes that are the same each time."""

import io
import logging
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from .palette import MUTED

_METADATA = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}

# It warns of the dates in matplotlib's own fonts, which nobody can do anything about.
logging.getLogger("fontTools").setLevel(logging.ERROR)


def style_context() -> AbstractContextManager[None]:
    """Return the context in which figures are drawn and saved."""
    return matplotlib.rc_context(fname=Path(__file__).with_name("paper.mplstyle"))


def picture_bytes(figure: Figure, kind: str, *, note: str) -> bytes:
    """Return the figure as a file of the kind "pdf" or "png", with a note in its lower right corner."""
    corner = figure.text(0.998, -0.01, note, ha="right", va="top", fontsize=6.5, color=MUTED, style="italic")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, bbox_inches="tight", pad_inches=0.05, metadata=_METADATA[kind])
    corner.remove()
    return buffer.getvalue()
