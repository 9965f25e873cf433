"""Frozen values: ``@dataclass(frozen=True)`` at a small part of its cost.

The standard library's loads ``inspect`` and compiles each class's methods whenever a process
starts. With it a run of a command line tool costs 34 ms of CPU over the bare interpreter where the
client is switched off, and 72 ms where it records; with these 11 and 40 ms (15 and 40 are the
limits, ``python -m benchmarks.peers sdk``). These share their methods. Type checkers,
``dataclasses.fields`` and ``dataclasses.replace`` take them for dataclasses.

:class:`NamedTuple` is to type checkers that of ``typing``, which compiles each annotation.
"""

from __future__ import annotations

from collections import namedtuple

from mechanisms.errors import did_you_mean

# As typing has it, whose import would be a fifth of what a client that does nothing costs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, TypeVar, dataclass_transform
    from typing import NamedTuple as NamedTuple

    Class = TypeVar("Class", bound=type)
    Value = TypeVar("Value")
else:

    def dataclass_transform(**options):
        return lambda decorator: decorator

    class _Named(type):
        """Makes a class of tuples of one that derives from :class:`NamedTuple` alone."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body["__annotations__"]
            defaults = [body[field] for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            made.__new__.__annotations__ = fields
            for attribute, value in body.items():
                if attribute not in fields:
                    setattr(made, attribute, value)
            return made

    class NamedTuple(metaclass=_Named):
        """Makes tuples of the values that a class's annotations name; these must be texts."""


@dataclass_transform(frozen_default=True)
def frozen(kind: Class) -> Class:
    """Make a class of the values that its annotations name, those of its base first.

    Annotations are texts (``from __future__ import annotations``), and what a subclass of such a
    class adds is named by decorating it too. A method that the class has itself is kept; a
    ``__post_init__`` is called once all values are there.
    """
    made: Any = kind
    inherited: tuple[str, ...] = getattr(made, "__match_args__", ())
    own = {name: text for name, text in made.__annotations__.items() if "ClassVar" not in text}
    names = inherited + tuple(name for name in own if name not in inherited)
    setattr(made, "__match_args__", names)  # noqa: B010 - mypy takes it for a constant
    made._defaults = getattr(made, "_defaults", {}) | {
        name: vars(made)[name] for name in own if name in vars(made)
    }
    for name, method in _METHODS.items():
        if name not in vars(kind):
            setattr(kind, name, method)
    if not hasattr(kind, "__post_init__"):
        made.__post_init__ = _accept
    return kind


def names_of(kind: type) -> tuple[str, ...]:
    """Return the names of a frozen class's values, in order."""
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return names


def types_of(kind: type) -> dict[str, str]:
    """Return what a frozen class declares its values to be, by name."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        texts |= vars(base).get("__annotations__", {})
    return {name: texts[name] for name in names_of(kind)}


def replace(value: Value, **changes: Any) -> Value:
    """Return a copy of a frozen value with other values in it, checked as any other."""
    kept = {name: getattr(value, name) for name in names_of(type(value))}
    return type(value)(**kept | changes)


def shown(value: object, *hidden: str) -> str:
    """Return what ``repr`` says of a frozen value, without the values named."""
    parts = [f"{n}={getattr(value, n)!r}" for n in names_of(type(value)) if n not in hidden]
    return f"{type(value).__qualname__}({', '.join(parts)})"


def _init(self: Any, *values: object, **named: object) -> None:
    names = self.__match_args__
    if len(values) == len(names) and not named:
        # As most are made, some thousand a second: what follows would take three times as long.
        self.__dict__.update(zip(names, values, strict=True))
        self.__post_init__()
        return
    what = type(self).__name__
    if len(values) > len(names):
        raise TypeError(f"{what} takes {len(names)} values, not {len(values)}")
    given = dict(zip(names, values, strict=False))
    if twice := given.keys() & named.keys():
        raise TypeError(f"{what} was given {', '.join(sorted(twice))} twice")
    given = self._defaults | given | named
    if given.keys() != set(names):
        unknown, missing = sorted(given.keys() - set(names)), sorted(set(names) - given.keys())
        near = did_you_mean(unknown[0], names) if unknown else ""
        wrong = f"it has no {', '.join(unknown)}{near}" if unknown else f"got no {missing[0]}"
        raise TypeError(f"{what} takes {', '.join(names)}; {wrong}")
    for name in names:
        object.__setattr__(self, name, given[name])
    self.__post_init__()


def _accept(self: object) -> None:
    """Check nothing."""


def _content(self: Any) -> tuple[object, ...]:
    return tuple([getattr(self, name) for name in self.__match_args__])


def _equal(self: object, other: object) -> Any:
    return _content(self) == _content(other) if type(self) is type(other) else NotImplemented


def _hash(self: object) -> int:
    return hash(_content(self))


def _refuse(self: object, name: str, value: object = None) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to or delete {name!r}: the value is frozen")


def _twin(kind: Any) -> type:
    """Return the dataclass of the standard library that a frozen class stands for."""
    import dataclasses

    fields: list[Any] = [
        (name, text, *([kind._defaults[name]] if name in kind._defaults else []))
        for name, text in types_of(kind).items()
    ]
    return dataclasses.make_dataclass(kind.__name__, fields, eq=False, repr=False)


def _fields_of(kind: type) -> object:
    return _twin(kind).__dataclass_fields__  # type: ignore[attr-defined]


def _signature_of(kind: type) -> object:
    import inspect

    return inspect.signature(_twin(kind))


class _Asked:
    """What ``dataclasses``, ``inspect`` and ``help`` ask a class for, found out when they do."""

    def __init__(self, find: Callable[[type], object]) -> None:
        self._find = find

    def __get__(self, value: object, kind: type) -> object:
        return self._find(kind)


_METHODS: dict[str, Any] = {
    "__init__": _init,
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": shown,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__dataclass_fields__": _Asked(_fields_of),
    "__signature__": _Asked(_signature_of),
}
