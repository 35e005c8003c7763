"""Public weights, read from files and registries without PyTorch and without running anything in them."""

from ._load import Naming as Naming
from ._load import download as download
from ._load import load_safetensors_weights as load_safetensors_weights
from ._pretrained import PRETRAINED as PRETRAINED
from ._pretrained import Pretrained as Pretrained
from ._pretrained import pretrained as pretrained
from ._torch_files import convert as convert
from ._torch_files import read_torch_file as read_torch_file
