"""Seconds that `import epinet_eqx` takes beyond jax, and beyond all of its dependencies."""

import subprocess
import sys

from ._measure import Ratio

# Of the processor, since a busy machine makes the others longer.
_PROGRAM = """
import jax, time
start = time.process_time()
import equinox, optax
ours = time.process_time()
import epinet_eqx
print(time.process_time() - start, time.process_time() - ours)
"""


def main() -> list[Ratio]:
    """Return the seconds that the import takes, the best of five."""
    runs = [
        subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(5)
    ]
    beyond_jax, ours = (min(map(float, column)) for column in zip(*runs, strict=True))
    return [
        Ratio("import: seconds beyond jax", beyond_jax, 0.5, at_most=True),
        Ratio("import: seconds beyond jax, equinox, optax", ours, 0.5, at_most=True),
    ]
