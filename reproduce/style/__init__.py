"""The look of all figures."""

from .axes import add_legend as add_legend
from .axes import set_log_scale as set_log_scale
from .cells import Cells as Cells
from .cells import draw_cells as draw_cells
from .palette import AGENTS as AGENTS
from .palette import INK as INK
from .palette import MUTED as MUTED
from .palette import Look as Look
from .palette import shade as shade
from .save import pictures as pictures
from .save import style_context as style_context
