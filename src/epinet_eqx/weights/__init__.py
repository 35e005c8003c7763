"""Public weights: read from safetensors files without PyTorch, and without running anything that is in them."""

from ._download import download as download
from ._load import load_safetensors_weights as load_safetensors_weights
from ._naming import Naming as Naming
