"""Convert PyTorch weights: `python -m epinet_eqx.weights convert weights.pth weights.safetensors`."""

import argparse
import sys

from ._torch_files import convert


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m epinet_eqx.weights", description="Public weights without PyTorch.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("convert", help="convert a PyTorch file to a safetensors file without running it")
    command.add_argument("source", help="a .pth or .pt file with a state dict")
    command.add_argument("target", help="the safetensors file to write")
    options = parser.parse_args(arguments)
    try:
        tensors = convert(options.source, options.target)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    count = sum(value.size for value in tensors.values())
    sys.stdout.write(f"{len(tensors)} tensors, {count:,} numbers: {options.target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
