"""Settings and fixtures of all tests.

Nothing of `epinet_eqx` is imported here at the top: pytest installs the run-time shape checker, and only modules that
are imported after it are checked.
"""

import importlib.metadata
import os
import zlib

# Without its compilers for fusions XLA takes a quarter less for tiny programs; jax 0.12 has no others.
if importlib.metadata.version("jax").startswith("0.10."):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import jax
import jax.random as jr
import jaxtyping
import pytest

# Before the backend starts, and so before any array exists.
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
# Most of the time of these tests goes into compiling tiny programs, which XLA need not optimize.
jax.config.update("jax_disable_most_optimizations", True)

# Pictures are drawn without a screen.
os.environ["MPLBACKEND"] = "Agg"


def pytest_collection_modifyitems(items):
    """Begin with long tests: a process that meets one last is waited for by the others."""
    items.sort(key=lambda item: item.get_closest_marker("once") is None)


@pytest.fixture
def getkey(request):
    """A function that returns a fresh random key at each call.

    The sequence depends on the test's id only, so a test sees the same keys alone, in any order, and on any worker.
    """
    root = jr.key(zlib.crc32(request.node.nodeid.encode()))
    count = 0

    def next_key():
        nonlocal count
        count += 1
        return jr.fold_in(root, count)

    return next_key


@pytest.fixture
def as_user():
    """Switch the run-time shape checker off: what is left are the messages that a user without it reads."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def optimized():
    """Compile as a user does: for tests that count operations or memory."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
