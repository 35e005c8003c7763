"""What every configuration can do."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

Unit = TypeVar("Unit")


class Config(Protocol):
    """The configuration of an artifact, a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def units(self) -> Mapping[str, Any]:
        """Return the runs by name, each a frozen dataclass; what is done is kept run by run."""
        ...


def unit_of(kind: type[Unit], config: Config, **own: Any) -> Unit:
    """Return a unit of a configuration: fields of the same name are the configuration's, the others its own."""
    names = {field.name for field in dataclasses.fields(config)}
    shared = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(kind)  # pyright: ignore[reportArgumentType]
        if field.name in names and field.name not in own
    }
    return kind(**shared, **own)
