"""Images per second of the loader, over a bare pool of processes that makes the same images of the same JPEG files."""

import functools as ft
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax.random as jr
import numpy as np

from epinet_eqx._keys import generator_of
from epinet_eqx.data import Decode, ImageFolder, Loader, RandomFlip, RandomResizedCrop, Transform
from epinet_eqx.data._transforms import apply

from ._measure import Ratio

NUM_CLASSES = 4
NUM_IMAGES = 768
BATCH_SIZE = 32
NUM_ROUNDS = 5
PAUSE = 1.0
TRAIN = (RandomResizedCrop(224), RandomFlip())


def write_images(root: pathlib.Path) -> None:
    """Write JPEG files of the size and the bytes per pixel of ImageNet's."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(NUM_IMAGES):
        width, height = (500, 375) if number % 3 else (375, 500)
        blocks = Image.fromarray(rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8))
        smooth = np.asarray(blocks.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
        noisy = np.clip(smooth + rng.integers(-12, 13, smooth.shape), 0, 255).astype(np.uint8)
        folder = root / f"n{number % NUM_CLASSES:08d}"
        folder.mkdir(exist_ok=True)
        Image.fromarray(noisy).save(folder / f"{number:05d}.JPEG", quality=90)


def make_image(transforms: tuple[Transform, ...], path: str) -> None:
    """Do the work of one image, and nothing else."""
    apply(transforms, pathlib.Path(path).read_bytes(), generator_of(1, 1))


def timed(function: Callable[[], Any]) -> float:
    """Return the seconds that a function takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(source: ImageFolder, workers: int) -> tuple[float, float, float]:
    """Return images per second of a bare pool, of the loader, and of a bare pool that only decodes.

    They take turns, so that a busy machine slows all of them, and their processes are running before.
    """
    files = [source.describe(position) for position in range(len(source))]
    num_batches = len(files) // BATCH_SIZE
    times: tuple[list[float], ...] = ([], [], [])
    pool = multiprocessing.get_context("spawn").Pool(workers)
    loader = Loader(source, batch_size=BATCH_SIZE, transforms=TRAIN, num_workers=workers, key=jr.key(0))

    def run_bare(transforms: tuple[Transform, ...]) -> None:
        pool.map(ft.partial(make_image, transforms), files, chunksize=BATCH_SIZE)

    def run_loader(count: int) -> None:
        for _ in range(count):
            loader.next_arrays()

    with pool, loader:
        run_bare(TRAIN)
        for _ in range(NUM_ROUNDS):
            # What was made ahead, two batches by each worker and one in its hands, is not counted.
            run_loader(3 * workers)
            times[1].append(timed(lambda: run_loader(num_batches)))
            # The loader makes batches ahead again, which must not slow the others.
            time.sleep(PAUSE)
            times[0].append(timed(lambda: run_bare(TRAIN)))
            times[2].append(timed(lambda: run_bare((Decode(),))))
    bare, loaded, decoded = (len(files) / min(record) for record in times)
    return bare, loaded, decoded


def main() -> list[Ratio]:
    """Return the rate of the loader over that of the bare pool, for the training images of ImageNet."""
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as name:
        write_images(pathlib.Path(name))
        bare, loaded, decoded = measure(ImageFolder(name), workers)
    sys.stdout.write(
        f"     loader: {loaded:.0f} images/s with {workers} workers; bare pool {bare:.0f}, decoding {decoded:.0f}\n"
    )
    return [Ratio("loader: images/s, over a bare pool that makes the same images", loaded / bare, 0.8)]
