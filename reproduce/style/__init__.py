"""The look of all figures."""

from .palette import AGENTS as AGENTS
from .palette import INK as INK
from .palette import MUTED as MUTED
from .palette import Look as Look
from .palette import shade as shade
from .save import pictures as pictures
from .save import style_context as style_context
