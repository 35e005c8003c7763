"""CPU-seconds of the first call of `fit` and its steps per second, over a plain loop of Equinox and optax.

Both train the same epinet of the testbed's size on the same data with Adam: a batch of 100 and 8 indices per step. The
loop is the usual hand-written one: a jitted step, called 100 times. Each side runs in its own processes, without stored
programs, since a first call leaves its programs behind.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from ._measure import Ratio

FIRST_STEPS = 100
FURTHER_STEPS = 2000
PROCESSES = 3
SIDES = ("fit", "loop")


def _fit_steps(enn: Any, x: Any, y: Any) -> Callable[[int], Any]:
    """Return a call of `fit`."""
    import jax.random as jr

    from epinet_eqx import fit
    from epinet_eqx.losses import CrossEntropy

    loss = CrossEntropy(l2=1e-4)
    return lambda num_steps: fit(enn, (x, y), loss, num_steps=num_steps, progress=False, key=jr.key(2)).history.losses


def _loop_steps(enn: Any, x: Any, y: Any) -> Callable[[int], Any]:
    """Return a call of a loop that is written by hand."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr
    import optax

    from epinet_eqx import trainable_mask

    optimizer = optax.adam(1e-3)

    @eqx.filter_jit
    def step(params: Any, rest: Any, opt_state: Any, x: Any, y: Any, key: Any) -> Any:
        batch_key, index_key = jr.split(key)
        ids = jr.randint(batch_key, (100,), 0, len(x))
        zs = jr.normal(index_key, (8, 8))

        def loss_of(params: Any) -> Any:
            enn = eqx.combine(params, rest)
            logits = jax.vmap(lambda x: enn.heads(enn.embed(x), zs))(x[ids])
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.tile(y[ids, None], (1, 8)))
            return jnp.mean(losses) + 1e-4 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))

        value, grads = jax.value_and_grad(loss_of)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return eqx.apply_updates(params, updates), opt_state, value

    def run(num_steps: int) -> Any:
        params, rest = eqx.partition(enn, trainable_mask(enn))
        opt_state, losses = optimizer.init(params), []
        for number in range(num_steps):
            params, opt_state, value = step(params, rest, opt_state, x, y, jr.fold_in(jr.key(2), number))
            losses.append(value)
        return jnp.stack(losses)

    return run


def measure_side(side: str) -> dict[str, float]:
    """Return the CPU-seconds of a first call in this process, and the seconds of a further one."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from .bench_training import INPUT_DIM, NUM_EXAMPLES, make_epinet

    x = jr.normal(jr.key(1), (NUM_EXAMPLES, INPUT_DIM))
    y = (x[:, 0] > 0).astype(jnp.int32)
    enn = make_epinet(jr.key(0))
    jax.block_until_ready(eqx.filter((enn, x, y), eqx.is_array))
    run = {"fit": _fit_steps, "loop": _loop_steps}[side](enn, x, y)
    start = time.process_time()
    losses = jax.block_until_ready(run(FIRST_STEPS))
    first = time.process_time() - start
    if not float(losses[-1]) < float(losses[0]):
        raise RuntimeError(f"{side!r} must learn something; got losses from {losses[0]} to {losses[-1]}.")
    times = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(run(FURTHER_STEPS))
        times.append(time.perf_counter() - start)
    return {"first": first, "further": min(times)}


def _in_process(side: str) -> dict[str, float]:
    """Return the measurement of a new process."""
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-m", "benchmarks.bench_first_call", side]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def main() -> list[Ratio]:
    """Return the ratio of first calls and that of steps per second."""
    found = {side: [] for side in SIDES}
    for _ in range(PROCESSES):
        for side in SIDES:
            found[side].append(_in_process(side))
    first = {side: min(row["first"] for row in rows) for side, rows in found.items()}
    further = {side: min(row["further"] for row in rows) for side, rows in found.items()}
    said = " and ".join(f"{first[side]:.2f} of the {side}" for side in SIDES)
    return [
        Ratio(f"first call: CPU-seconds of `fit`, over a plain loop ({said})", first["fit"] / first["loop"], 2.0, True),
        Ratio("first call: steps/s of `fit`, over a plain loop", further["loop"] / further["fit"], 2.0),
    ]


if __name__ == "__main__":
    print(json.dumps(measure_side(sys.argv[1])))
