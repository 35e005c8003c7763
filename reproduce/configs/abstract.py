"""What every configuration can do."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol


class Config(Protocol):
    """The configuration of an artifact, a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def units(self) -> Mapping[str, Any]:
        """Return the runs by name, each a frozen dataclass; what is done is kept run by run."""
        ...
