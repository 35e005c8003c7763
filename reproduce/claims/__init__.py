"""The paper's sentences as checks: statement, measured, standard error, verdict. A verdict is never typed in."""

from .decisions import DECISIONS
from .images import IMAGES
from .ledger import Claim as Claim
from .ledger import LedgerLine as LedgerLine
from .ledger import Measurement as Measurement
from .ledger import judge as judge
from .replication import REPLICATION
from .rules import AtLeast as AtLeast
from .rules import AtMost as AtMost
from .rules import Equals as Equals
from .rules import Rule as Rule
from .rules import Verdict as Verdict
from .testbed import TESTBED
from .theory import THEORY
from .thm3 import THM3
from .thm4 import THM4
from .thm5 import THM5

_ALL = (*THEORY, *TESTBED, *IMAGES, *REPLICATION, *THM3, *THM4, *THM5, *DECISIONS)

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in _ALL}
"""Every claim by its id."""
