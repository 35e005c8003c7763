"""What the artifacts that score agents on problems of the Neural Testbed share: one set of records."""

import math
from typing import Any

from ..artifact import Tolerance

TESTBED: dict[str, Any] = {
    "seed": 5,
    "run": "testbed:score",
    "groups": "groups",
    "records": "testbed",
    "tolerances": {
        "marginal": Tolerance(absolute=0.02, relative=0.1),
        "joint": Tolerance(absolute=0.1, relative=0.1),
        "marginal_error": Tolerance(absolute=0.01, relative=0.2),
        "joint_error": Tolerance(absolute=0.05, relative=0.2),
        "flops": Tolerance(relative=0.2),
        "seconds": Tolerance(absolute=math.inf),
    },
}
