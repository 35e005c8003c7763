"""What `import epinet_eqx` adds to its dependencies."""

import subprocess
import sys

from ._measure import Ratio

_PROGRAM = """
import jax, equinox, optax, time
start = time.perf_counter()
import epinet_eqx
print(time.perf_counter() - start)
"""


def main() -> list[Ratio]:
    """Return the seconds that the import takes after its dependencies, the best of five."""
    runs = [
        subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True) for _ in range(5)
    ]
    return [
        Ratio("import: seconds beyond jax, equinox, optax", min(float(run.stdout) for run in runs), 0.5, at_most=True)
    ]
