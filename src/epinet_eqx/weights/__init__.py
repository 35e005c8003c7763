"""Public weights, read from safetensors files without PyTorch and without running anything in them."""

from ._download import download as download
from ._load import Naming as Naming
from ._load import load_safetensors_weights as load_safetensors_weights
from ._torch_files import convert as convert
from ._torch_files import read_torch_file as read_torch_file
