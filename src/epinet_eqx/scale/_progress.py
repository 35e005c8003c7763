"""A progress bar that counts images."""

import io

import jax
from tqdm import tqdm


class ImageBar:
    """Shows how many examples were seen, and how many per second; in the first process only."""

    def __init__(self, *, num_steps: int, start: int, visible: bool):
        """Initialize with the number of steps, those made already, and whether anything is shown."""
        self._num_steps = num_steps
        self._made = start
        # A bar that is not shown still measures the rate.
        self._sink = None if visible and jax.process_index() == 0 else io.StringIO()
        self._bar: tqdm | None = None

    def update(self, batch_size: int) -> None:
        """Count one step."""
        if self._bar is None:
            self._bar = tqdm(
                total=self._num_steps * batch_size,
                initial=self._made * batch_size,
                unit=" images",
                unit_scale=True,
                dynamic_ncols=True,
                file=self._sink,
            )
        self._bar.update(batch_size)

    def show(self, text: str) -> None:
        """Show a text beside the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
        if self._sink is not None:
            self._sink.seek(0)
            self._sink.truncate()

    @property
    def images_per_second(self) -> float:
        """The rate of late, or since the start while that is not known."""
        if self._bar is None:
            return 0.0
        now = self._bar.format_dict
        return now["rate"] or (now["n"] - now["initial"]) / max(now["elapsed"], 1e-9)

    def close(self) -> None:
        """End the bar."""
        if self._bar is not None:
            self._bar.close()
