"""What experiments on shipped banks share: folds, and epinets that are trained on stored outputs."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Folds:
    """Cross-fitting: everything is chosen on all folds but one and judged on that one, so each image is judged once.

    Attributes:
        num_folds: number of folds.
        blocks_per_fold: blocks of images that rows of results are means over; standard errors are over all blocks.
        num_tuning: images of the other folds that are kept from training, to choose temperatures on.
        tuning_samples: number of indices a temperature is chosen with.
        temperatures: candidates for what outputs are divided by.
        chunk_size: how many indices are computed at a time: few where there are many classes, so that many images
            share the weights that are contracted with an index.
        limit: number of images, for a quick look; None for all.
    """

    num_folds: int = 5
    blocks_per_fold: int = 2
    num_tuning: int = 400
    tuning_samples: int = 100
    temperatures: tuple[float, ...] = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)
    chunk_size: int = 16
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class StoredEpinet:
    """An epinet on stored outputs; the default is the paper's on ImageNet, without the prior that reads pixels.

    Attributes:
        index_dim: dimension of the index.
        hidden: sizes of the hidden layers.
        prior_scale: scale of the matched prior.
        base_temperature: divides the outputs of the base, in training and after.
        l2: strength of the L2 penalty.
        label_smoothing: weight that the wrong classes share.
        num_index_samples: index samples per step.
        num_steps: number of steps; 0 leaves the epinet untrained.
        batch_size: examples per step.
        learning_rate: the first learning rate of a cosine schedule.
    """

    index_dim: int = 30
    hidden: tuple[int, ...] = (50,)
    prior_scale: float = 1.0
    base_temperature: float = 1.0
    l2: float = 1e-4
    label_smoothing: float = 0.1
    num_index_samples: int = 5
    num_steps: int = 300
    batch_size: int = 100
    learning_rate: float = 0.1
