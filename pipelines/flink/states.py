"""Flink's keyed state as the keepers know it: bytes by key, and nothing of Flink's types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from pyflink.common import Types
from pyflink.datastream import RuntimeContext
from pyflink.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)

from pipelines.streaming.states import Bag, Cell, Store

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())

_States = TypeVar("_States")


class FlinkCell:
    """A value state."""

    def __init__(self, context: RuntimeContext, name: str) -> None:
        self._state = context.get_state(ValueStateDescriptor(name, BYTES))

    def get(self) -> bytes | None:
        """Return the value; None if there is none."""
        return self._state.value()  # type: ignore[no-any-return]

    def set(self, value: bytes) -> None:
        """Put a value in the place of the last."""
        self._state.update(value)

    def clear(self) -> None:
        """Remove the value."""
        self._state.clear()


class FlinkBag:
    """A list state."""

    def __init__(self, context: RuntimeContext, name: str) -> None:
        self._state = context.get_list_state(ListStateDescriptor(name, BYTES))

    def append(self, value: bytes) -> None:
        """Add a value."""
        self._state.add(value)

    def __iter__(self) -> Iterator[bytes]:
        """Yield all values, oldest first."""
        return iter(self._state.get())

    def clear(self) -> None:
        """Remove all values."""
        self._state.clear()


class FlinkStore:
    """A map state."""

    def __init__(self, context: RuntimeContext, name: str) -> None:
        self._state = context.get_map_state(MapStateDescriptor(name, BYTES, BYTES))

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if there is none."""
        return self._state.get(key)  # type: ignore[no-any-return]

    def put(self, key: bytes, value: bytes) -> None:
        """Put a value in the place of the key's last."""
        self._state.put(key, value)

    def remove(self, key: bytes) -> None:
        """Remove a key, which may not be there."""
        self._state.remove(key)

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return all keys and values, in any order."""
        return list(self._state.items())


_KINDS: dict[Any, type[FlinkCell | FlinkBag | FlinkStore]] = {
    Cell: FlinkCell,
    Bag: FlinkBag,
    Store: FlinkStore,
}


def states(kind: type[_States], context: RuntimeContext) -> _States:
    """Return an operator's states.

    Parameters
    ----------
    kind : type
        A dataclass of cells, bags and stores; its fields name the states in savepoints.
    context : RuntimeContext
    """
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: _KINDS[hints[name]](context, name) for name in names})
