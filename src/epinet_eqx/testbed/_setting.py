"""The settings of the Neural Testbed (Section 5, Appendix F.1)."""

import dataclasses
import itertools
import math

from .._checks import check_positive, unknown_name

INPUT_DIMS = (2, 10, 100)
DATA_RATIOS = (1, 10, 100, 1000)
TEMPERATURES = (0.01, 0.1, 0.5)
NUM_SEEDS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    r"""The parameters of a problem, except its random key.

    Attributes:
        input_dim: the input dimension $D$.
        data_ratio: $\lambda$, the number of training examples over the input dimension.
        temperature: $\rho$, which divides the logits of the true model: a low one means a high signal-to-noise ratio.
        seed: which of the problems with these three values.
        number: the problem's number, from 1 in the order of the testbed; its random key is derived from it.
    """

    input_dim: int
    data_ratio: int | float
    temperature: float
    seed: int
    number: int

    def __post_init__(self):
        """Raise unless the problem exists."""
        check_positive("input_dim", self.input_dim)
        for name in ("data_ratio", "temperature"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"`{name}` must be positive and finite; got {value}.")
        if self.num_train < 1:
            raise ValueError(
                f"`data_ratio` must give at least one example for `input_dim` {self.input_dim}; got {self.data_ratio}."
            )

    @property
    def num_train(self) -> int:
        r"""The number of training examples $T = \lambda D$."""
        return round(self.data_ratio * self.input_dim)

    @property
    def id(self) -> str:
        """The problem's name, such as `d10_lambda100_rho0.1_seed3`."""
        return f"d{self.input_dim}_lambda{self.data_ratio:g}_rho{self.temperature:g}_seed{self.seed}"


def settings() -> list[Setting]:
    """Return the 180 settings of the testbed in its order: by input dimension, data ratio, temperature and seed."""
    values = itertools.product(INPUT_DIMS, DATA_RATIOS, TEMPERATURES, range(NUM_SEEDS))
    return [
        Setting(input_dim=dim, data_ratio=ratio, temperature=temperature, seed=seed, number=number)
        for number, (dim, ratio, temperature, seed) in enumerate(values, start=1)
    ]


def find_setting(problem: str | int) -> Setting:
    """Return the setting of a problem of the testbed, by its id or by its number from 1 to 180."""
    known = settings()
    if isinstance(problem, int):
        if not 1 <= problem <= len(known):
            raise ValueError(f"`problem` must be a number from 1 to {len(known)}; got {problem}.")
        return known[problem - 1]
    by_id = {setting.id: setting for setting in known}
    if problem not in by_id:
        raise unknown_name("problem", problem, by_id)
    return by_id[problem]
