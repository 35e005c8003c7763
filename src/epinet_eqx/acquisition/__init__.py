"""Active learning: choose inputs of a pool to label, one by one or as a batch.

```python
asked = acquire(bald_scores(enn, pool, draws), 10)
asked = batch_bald(enn, pool, 10, draws, key=key).positions
```
"""

from ._active_learning import Acquisition as Acquisition
from ._active_learning import ActiveRun as ActiveRun
from ._active_learning import PoolLearner as PoolLearner
from ._active_learning import acquire as acquire
from ._active_learning import at_random as at_random
from ._active_learning import balanced_start as balanced_start
from ._active_learning import by_batch_bald as by_batch_bald
from ._active_learning import by_score as by_score
from ._active_learning import run_active_learning as run_active_learning
from ._batch_bald import BatchChoice as BatchChoice
from ._batch_bald import batch_bald as batch_bald
from ._scores import bald_scores as bald_scores
from ._scores import entropy_scores as entropy_scores
from ._scores import epig_scores as epig_scores
from ._scores import joint_loss_scores as joint_loss_scores
from ._scores import margin_scores as margin_scores
from ._scores import variance_scores as variance_scores
