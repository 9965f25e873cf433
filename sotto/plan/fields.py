"""Reading and writing a plan's JSON documents, field by field as their classes declare them.

A field of a plan is declared once, where :class:`sotto.plan.compiled.CompiledPlan`,
:class:`sotto.plan.metric.CompiledMetric` or a class within them has it: by its name, its type,
whether it can be left out (it has a default, or may be None), and ``Wire[...]`` if the fingerprint
covers it. Needs the standard library alone.
"""

from __future__ import annotations

from mechanisms.frozen import names_of, types_of
from sotto.errors import PlanError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated, Any, TypeAlias, TypeVar, cast

    T = TypeVar("T")
    #: A field that decides which bytes a device sends, or how they are decoded and counted.
    Wire: TypeAlias = Annotated[T, "the fingerprint covers it"]
else:

    def cast(kind, value):
        return value


#: Far beyond every range that is checked later, and still a float.
LARGEST = 10**100
_REQUIRED: Any = object()
_WIRE = "Wire["
_KINDS = {"int": int, "str": str, "bool": bool, "float": float}


def on_wire(kind: type, **names: str) -> frozenset[str]:
    """Return the keys of a class's documents that the fingerprint covers.

    ``names`` are the keys of fields that documents call otherwise.
    """
    return frozenset(
        names.get(name, name)
        for name, declared in types_of(kind).items()
        if declared.startswith(_WIRE)
    )


def in_json(value: object) -> object:
    """Return a value of a plan as JSON has it, where tuples are lists."""
    if isinstance(value, tuple):
        return [in_json(each) for each in value]
    return written(value) if hasattr(value, "__match_args__") else value


def written(value: object, *without: str) -> dict[str, object]:
    """Return a value's fields as a JSON object, without those that have their defaults or None."""
    found = {name: getattr(value, name) for name in names_of(type(value)) if name not in without}
    return {
        name: in_json(each)
        for name, each in found.items()
        if each is not None and each != getattr(type(value), name, None)
    }


class Fields:
    """A JSON object whose fields are taken by name and exact type."""

    def __init__(self, document: object, where: str) -> None:
        if not isinstance(document, dict):
            raise PlanError(f"{where}: a JSON object was expected")
        self._document = document
        self._where = where

    def take(self, name: str, kind: type[T], default: Any = _REQUIRED) -> T:
        """Return a field; raises PlanError if it is missing or of another type."""
        value = self._document.get(name, default)
        if value is _REQUIRED:
            raise PlanError(f"{self._where}: {name!r} is missing")
        # A JSON true is no number, though Python's bool is an int.
        if type(value) is not kind and not (value is None and default is None):
            raise PlanError(f"{self._where}: {name!r} must be {kind.__name__}")
        if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
            raise PlanError(f"{self._where}: {name!r} is too large")
        return cast("T", value)

    def record(self, kind: type[T], /, **given: object) -> T:
        """Return a value of a class: of its fields those given, the others from the document."""
        for name, declared in types_of(kind).items():
            if name not in given:
                given[name] = self._declared(name, declared, getattr(kind, name, _REQUIRED))
        return kind(**given)

    def _declared(self, name: str, declared: str, default: object) -> object:
        plain = declared[len(_WIRE) : -1] if declared.startswith(_WIRE) else declared
        if plain.endswith(" | None"):
            plain, default = plain[: -len(" | None")], None
        if plain == "tuple[str, ...]":
            values = self.items(name, (str,))
            return () if values is None and default is not None else values
        return self.take(name, _KINDS[plain], default)

    def names(self) -> list[str]:
        """Return the names of all fields, sorted."""
        return sorted(self._document)

    def items(self, name: str, kinds: tuple[type, ...]) -> tuple[Any, ...] | None:
        """Return a list's items, which are of these types, or None where there is no list."""
        values = self._document.get(name)
        if values is None:
            return None
        if not (isinstance(values, list) and all(type(value) in kinds for value in values)):
            raise PlanError(f"{self._where}: {name!r} must be a list of {kinds[-1].__name__}")
        return tuple(values)
