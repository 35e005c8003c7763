"""Convert a PyTorch state dict to safetensors: `python scripts/convert_pth.py weights.pth weights.safetensors`.

The one place of this project that needs PyTorch. A `.pth` file is a pickle; it is read by the loader that makes tensors
and plain containers only and refuses everything else.
"""

import argparse
import pathlib
import sys
from typing import Any

# Where training scripts put the state dict, beside an optimizer's state and other things.
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")


def state_dict(content: Any) -> dict[str, Any]:
    """Return the named tensors of what a file holds, each with memory of its own."""
    import torch

    while isinstance(content, dict) and any(isinstance(content.get(name), dict) for name in WRAPPERS):
        content = next(content[name] for name in WRAPPERS if isinstance(content.get(name), dict))
    if not isinstance(content, dict) or not content or not all(torch.is_tensor(value) for value in content.values()):
        raise ValueError("`source` must hold a state dict: names with tensors, and nothing else.")
    return {name.removeprefix("module."): value.detach().contiguous().clone() for name, value in content.items()}


def main() -> int:
    """Convert one file and say what was in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="a .pth, .pt or .th file")
    parser.add_argument("target", type=pathlib.Path, help="the safetensors file to write")
    arguments = parser.parse_args()
    try:
        import torch
        from safetensors.torch import save_file
    except ModuleNotFoundError as error:
        parser.error(f"the package `{error.name}` must be installed: `pip install torch safetensors`")
    tensors = state_dict(torch.load(arguments.source, map_location="cpu", weights_only=True))
    save_file(tensors, arguments.target)
    print(f"{len(tensors)} tensors, {sum(value.numel() for value in tensors.values()):,} numbers: {arguments.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
