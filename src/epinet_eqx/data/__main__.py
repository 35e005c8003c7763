"""Download data: `python -m epinet_eqx.data fetch cifar10`."""

import argparse
import sys

from ._fetch import DOWNLOADS, fetch


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m epinet_eqx.data", description="Download public data sets.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("fetch", help="download a data set and verify it")
    command.add_argument("name", choices=sorted(DOWNLOADS))
    command.add_argument("--to", default="data", metavar="DIR", help="parent of its folder (default: %(default)s)")
    command.add_argument(
        "--from",
        dest="origin",
        choices=sorted({origin for download in DOWNLOADS.values() for origin in download.archives}),
        help="which archive (default: the first that is reachable)",
    )
    options = parser.parse_args(arguments)
    try:
        folder = fetch(options.name, options.to, origin=options.origin)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
