"""Programs that train a small network, to be killed, signaled, or joined with others.

    python _train_worker.py kill FOLDER NUM_KILLS SEED     train, and be killed so many times
    python _train_worker.py process FOLDER --coordinator=HOST:PORT --num-processes=2 --process-id=0
    python _train_worker.py process FOLDER ... --die=arrays    the same, without a stop, and with a death if asked for

Tests of the package import this file too, so it imports the package inside of functions.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import sys
import time

BATCH_SIZE = 8
NUM_EXAMPLES = 20


class Watched:
    """A stream of batches that calls a function with the number of each one before it is used."""

    def __init__(self, data, watch):
        self._data = data
        self._watch = watch

    def __next__(self):
        self._watch(self._data.get_state()["step"])
        return next(self._data)

    def get_state(self):
        return self._data.get_state()

    def set_state(self, state):
        self._data.set_state(state)


def run(folder, num_steps, *, mesh=None, shard_parameters=False, watch=lambda step: None, check=False, **options):
    """Train in a folder, from its latest checkpoint on; with `check`, all checkpoints are read before."""
    import jax.random as jr
    import numpy as np
    import optax
    from train_toys import toy_arrays, toy_network

    from epinet_eqx import training
    from epinet_eqx.losses import Batch, CrossEntropy

    folder = pathlib.Path(folder)
    model_key, train_key, data_key = jr.split(jr.key(11), 3)
    network, statistics = toy_network(width=1024 if shard_parameters else 8, dropout=0.2, key=model_key)
    optimizer = optax.sgd(optax.warmup_cosine_decay_schedule(0.025, 0.1, 3, 40), momentum=0.9)
    state = training.init_state(network, optimizer, model_state=statistics, ema=True, key=train_key)
    x, y = toy_arrays(NUM_EXAMPLES)
    data = training.MemoryIterator(
        Batch(x, y, np.arange(NUM_EXAMPLES, dtype=np.int32)), training.EpochBatches(BATCH_SIZE), key=data_key
    )
    checkpoints = training.Checkpoints(folder / "checkpoints", keep_last=2, metric="log_loss")
    if check:
        for step in checkpoints.steps():
            assert int(checkpoints.restore(state, data, step=step).step) == step
        data.set_state({"step": 0})
    return training.train(
        state,
        Watched(data, watch),
        training.StatefulObjective(CrossEntropy(l2=1e-3)),
        optimizer=optimizer,
        num_steps=num_steps,
        mesh=training.data_mesh() if mesh is None else mesh,
        shard_parameters=shard_parameters,
        ema_decay=0.9,
        validation=lambda: held_out(x, y),
        checkpoints=checkpoints,
        callbacks=[training.JsonlMetrics(folder / "metrics.jsonl")],
        progress=False,
        **options,
    )


def held_out(x, y):
    """Yield this process's held-out batches: one process has more of them than the other."""
    import jax
    import numpy as np

    for start in range(7 * jax.process_index(), len(y), 7 * jax.process_count()):
        rows = slice(start, start + 7)
        yield {"x": x[rows], "y": y[rows], "i": np.arange(len(y))[rows]}


def read_metrics(folder):
    """Return the lines of metrics, without what depends on the machine."""
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [{name: value for name, value in record.items() if name != "examples_per_second"} for record in records]


def read_losses(folder):
    """Return the losses of the training batches by step."""
    return {record["step"]: record["loss"] for record in read_metrics(folder) if "loss" in record}


KILLED_STEPS = 60


def train_to_the_end(folder, pipe):
    """Train in a child process that tells of its progress; the state at the end goes to a file."""
    import equinox as eqx
    import jax
    import jax.random as jr
    import numpy as np

    def watch(step):
        os.write(pipe, b".")
        # Steps of a larger model take their time.
        time.sleep(0.005)

    os.write(pipe, b"!")
    state = run(folder, KILLED_STEPS, watch=watch, check=True, eval_every=12, checkpoint_every=3, log_every=1).state
    leaves = jax.tree.leaves(eqx.filter(eqx.tree_at(lambda s: s.key, state, jr.key_data(state.key)), eqx.is_array))
    np.savez(folder / "final.npz", *map(np.asarray, leaves))


def fork_training(folder):
    """Return the process that trains in a folder, and the pipe that it tells of its steps by.

    A fork of this process has all packages imported; none of them has started a backend or a thread yet.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            train_to_the_end(folder, writer)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    return child, reader


def wait(child):
    """Return how a process has ended: the negative number of a signal, or its exit status."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def read_until(pipe, marker):
    """Read from a pipe until it has said so much, or its end."""
    said = b""
    while not said.endswith(marker) and (byte := os.read(pipe, 1)):
        said += byte


def kill_again_and_again(folder, num_kills, seed):
    """Train without and with kills at random moments, and say how these went."""
    import jax

    # Imported here, so that each fork has them: importing takes longer than training.
    import optax  # noqa: F401
    import orbax.checkpoint  # noqa: F401

    import epinet_eqx.training  # noqa: F401

    jax.config.update("jax_platforms", "cpu")
    rng = random.Random(seed)
    whole = folder / "whole"
    child, pipe = fork_training(whole)
    # The second step begins when the program of the first has been compiled.
    read_until(pipe, b"..")
    begin = time.monotonic()
    assert wait(child) == 0
    os.close(pipe)
    # About the time from one checkpoint to the next.
    interval = 3 * (time.monotonic() - begin) / KILLED_STEPS
    rounds, kills, drafts, seen = [folder / "round0"], 0, 0, set()
    while kills < num_kills:
        child, pipe = fork_training(rounds[-1])
        # Some are killed while they read the checkpoint, most of them in the loop, where they write one now and then.
        # Steps are counted and not timed, so that there is progress however busy the machine is.
        read_until(pipe, b"!" if kills % 5 == 4 else b"." * rng.randint(2, 6))
        time.sleep(rng.uniform(0, interval))
        os.kill(child, signal.SIGKILL)
        status = wait(child)
        os.close(pipe)
        assert status in (0, -signal.SIGKILL), status
        if status == 0:
            rounds.append(folder / f"round{len(rounds)}")
            continue
        kills += 1
        stored = rounds[-1] / "checkpoints"
        drafts += len(list(stored.glob(".*"))) if stored.exists() else 0
        seen.add(tuple(sorted(path.name for path in stored.iterdir())) if stored.exists() else ())
    child, pipe = fork_training(rounds[-1])
    assert wait(child) == 0
    os.close(pipe)
    print(json.dumps({"rounds": [str(path) for path in rounds], "kills": kills, "drafts": drafts, "seen": len(seen)}))


def start_process():
    """Prepare for training as one of several processes with two devices each."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")


def join(folder, flags):
    """Train as one of several processes; the second one is asked to stop in the third step."""
    start_process()
    import jax

    from epinet_eqx import training

    training.initialize_from(flags)

    def watch(step):
        if step == 2 and jax.process_index() == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        run(folder, 8, watch=watch, shard_parameters=True, checkpoint_every=4, eval_every=4, log_every=2)
    except training.TrainingInterrupted as stopped:
        print(json.dumps({"message": str(stopped), "step": stopped.step, "devices": jax.device_count()}))


def die():
    """End as by a failure of the machine."""
    os.kill(os.getpid(), signal.SIGKILL)


def join_and_die(folder, flags):
    """Train as one of several processes, and die in step 5, or in the checkpoint of step 6, if that is asked for."""
    start_process()
    import orbax.checkpoint

    from epinet_eqx import training

    training.initialize(flags.coordinator, flags.num_processes, flags.process_id, timeout=10)
    reached = 0

    def watch(step):
        nonlocal reached
        reached = step
        if flags.die == "step" and step == 5:
            die()

    write, rename = orbax.checkpoint.Checkpointer.save, pathlib.Path.rename

    def dying_write(*args, **options):
        if flags.die == "arrays" and reached == 5:
            die()
        return write(*args, **options)

    def dying_rename(path, target):
        if flags.die == "name" and path.name == ".writing-000000006":
            die()
        return rename(path, target)

    orbax.checkpoint.Checkpointer.save, pathlib.Path.rename = dying_write, dying_rename
    run(folder, 8, watch=watch, shard_parameters=True, checkpoint_every=3, eval_every=4, log_every=1)


def main():
    """Read the command line."""
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "kill":
        kill_again_and_again(folder, int(sys.argv[3]), int(sys.argv[4]))
        return
    from epinet_eqx.training import add_flags

    parser = argparse.ArgumentParser()
    add_flags(parser)
    parser.add_argument("--die", choices=["never", "step", "arrays", "name"])
    flags = parser.parse_args(sys.argv[3:])
    (join if flags.die is None else join_and_die)(folder, flags)


if __name__ == "__main__":
    main()
