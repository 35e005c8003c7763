"""Seconds that `import epinet_eqx` takes beyond jax, and that all of its packages take beyond its dependencies."""

import subprocess
import sys

from ._measure import Ratio

# Of the processor, since a busy machine makes the others longer. Packages are imported when they are asked for, so what
# a user waits for lies between the two.
_IMPORT = """
import jax, time
start = time.process_time()
import epinet_eqx
print(time.process_time() - start)
"""
_PACKAGES = """
import jax, equinox, optax, time
start = time.process_time()
import epinet_eqx
for name in dir(epinet_eqx):
    getattr(epinet_eqx, name)
print(time.process_time() - start)
"""


def _seconds(program: str) -> float:
    """Return what a program prints, the best of five."""
    command = [sys.executable, "-c", program]
    return min(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(5))


def main() -> list[Ratio]:
    """Return the seconds that the imports take."""
    return [
        Ratio("import: seconds beyond jax", _seconds(_IMPORT), 0.5, at_most=True),
        Ratio("import: seconds of all packages, beyond jax, equinox, optax", _seconds(_PACKAGES), 0.5, at_most=True),
    ]
