"""Frozen values are to everybody what frozen dataclasses are."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from functools import cached_property
from typing import Any, ClassVar
from typing import NamedTuple as TypingsOwn

import pytest

from mechanisms.frozen import NamedTuple, frozen, names_of, replace, shown


@frozen
class Base:
    """A value."""

    COUNT: ClassVar[int] = 7
    first: int
    second: str = "two"

    @cached_property
    def doubled(self) -> int:
        return 2 * self.first

    @property
    def name(self) -> str:
        return f"{self.first} {self.second}"


@frozen
class Derived(Base):
    """A value with one more, and a check."""

    third: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError("first must not be negative")

    def __repr__(self) -> str:
        return shown(self, "second")


def pickled(value: object) -> object:
    """Return what another process would be handed."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301


def twin(kind: type) -> Any:
    """Return the dataclass that a frozen class stands for."""
    made = dataclasses.make_dataclass(
        kind.__name__,
        [
            (each.name, each.type)
            if each.default is dataclasses.MISSING
            else (each.name, each.type, each.default)
            for each in dataclasses.fields(kind)
        ],
        frozen=True,
    )
    made.__qualname__ = kind.__qualname__
    return made


@pytest.mark.parametrize("given", [((1,), {}), ((1, "x"), {}), ((), {"second": "x", "first": 3})])
def test_it_is_what_the_dataclass_is(given: tuple[Any, Any]) -> None:
    values, named = given
    ours, theirs = Base(*values, **named), twin(Base)(*values, **named)
    assert repr(ours) == repr(theirs)
    assert hash(ours) == hash(theirs)
    assert dataclasses.astuple(ours) == dataclasses.astuple(theirs)  # type: ignore[call-overload]
    assert dataclasses.is_dataclass(ours)
    assert ours == Base(*values, **named)
    assert ours != Derived(*values, **named)
    assert ours != theirs
    assert str(inspect.signature(Base)) == "(first: 'int', second: 'str' = 'two') -> None"


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"first": 2}), ((1,), {"fourth": 2}), ((), {"second": 2})],
)
def test_wrong_arguments_are_refused_without_their_values(values: Any, named: Any) -> None:
    for kind in (Base, twin(Base)):
        with pytest.raises(TypeError):
            kind(*values, **named)
    with pytest.raises(TypeError) as told:
        Base("planted-1", "planted-2", "planted-3")  # type: ignore[call-arg, arg-type]
    assert "planted" not in str(told.value)


def test_it_cannot_be_changed() -> None:
    value = Base(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.first = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del value.first
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.other = 2  # type: ignore[attr-defined]
    assert value.first == 1


def test_a_subclass_adds_to_it_and_keeps_what_it_has_itself() -> None:
    value = Derived(1, third=(2,))
    assert names_of(Derived) == ("first", "second", "third")
    assert repr(value) == "Derived(first=1, third=(2,))"
    assert value.doubled == 2
    assert value.name == "1 two"
    assert value == Derived(1, "two", (2,))
    with pytest.raises(ValueError, match="negative"):
        Derived(-1)


def test_copies_are_equal_and_checked() -> None:
    value = Derived(4, "x", (1,))
    assert value.doubled == 8
    for other in (copy.copy(value), copy.deepcopy(value), pickled(value)):
        assert other == value
        assert other.doubled == 8
    assert replace(value, first=5) == Derived(5, "x", (1,))
    assert replace(value, first=5).doubled == 10
    assert dataclasses.replace(value, first=5) == Derived(5, "x", (1,))  # type: ignore[type-var]
    with pytest.raises(ValueError, match="negative"):
        replace(value, first=-1)


def test_patterns_match_it() -> None:
    match Base(1, "x"):
        case Base(first, second):
            assert (first, second) == (1, "x")
        case _:
            pytest.fail("no match")


class Pair(NamedTuple):
    """Two values."""

    first: int
    second: str | None = None

    @property
    def name(self) -> str:
        return f"{self.first} {self.second}"

    def __repr__(self) -> str:
        return f"Pair({self.first})"


class Own(TypingsOwn):
    first: int
    second: str | None = None


def test_a_named_tuple_is_what_that_of_typing_is() -> None:
    pair, own = Pair(1, second="x"), Own(1, second="x")
    assert pair == own == (1, "x")
    assert (*pair,) == (*own,)
    assert pair.name == "1 x"
    assert repr(pair) == "Pair(1)"
    assert pickled(pair) == copy.copy(pair) == pair
    assert type(pickled(pair)) is Pair
    assert Pair.__bases__ == Own.__bases__ == (tuple,)
    assert (Pair.__doc__, Pair.__module__, Pair.__qualname__) == ("Two values.", __name__, "Pair")
    assert Pair._fields == Own._fields
    assert Pair._field_defaults == Own._field_defaults
    assert str(inspect.signature(Pair)) == "(first: 'int', second: 'str | None' = None)"
    assert pair._replace(first=2) == own._replace(first=2) == (2, "x")
    assert typing.get_type_hints(Pair) == typing.get_type_hints(Own)
    with pytest.raises(TypeError):
        Pair()  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        pair.first = 2  # type: ignore[misc]
    assert not hasattr(pair, "__dict__")
