"""Public attributes that break results down: a plan's segments, and the arm of its experiment.

Each attribute has a few values. The last one stands for everything that is not listed, so that no
value is refused: ``other`` of a segment, and of an experiment ``none``, for devices outside, where
there are any. A *cell* is one combination of values. Its number is in the header of every message,
in the clear: it is public, and must never be derived from a value that is protected
(``docs/start/privacy.md``). Needs the standard library alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from math import prod

from mechanisms.digests import sha256
from mechanisms.frozen import frozen
from sotto.errors import ParameterError, did_you_mean, wrong_type

#: Cells of a plan, at most: each is a table of results of its own.
MAX_CELLS = 64
#: Segments of a plan, at most; an experiment's arm is one more attribute.
MAX_SEGMENTS = 2
#: The value for everything that a segment does not list, and the arm of a device that takes part in
#: no experiment.
OTHER, NO_ARM = "other", "none"
#: The unit of an experiment's share: millionths.
_WHOLE = 1_000_000
_ARM = b"sotto.arm\0"
#: Segments of a single recording, where they are not those of the device (:mod:`clientsdk.otel`).
MEASURED: ContextVar[Mapping[str, str | None] | None] = ContextVar("measured", default=None)
#: Neither ``=`` nor ``,``, which separate in ``os=linux,app_version=2``.
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}"
_NAME_RULE = "letters, digits, '_', '.' and '-', at most 64, a letter or digit first"


@frozen
class Attribute:
    """A public attribute and its values, of which the last one stands for all that is not listed.

    >>> Attribute("os", ("linux", "mac", "other")).index("plan9")
    2
    """

    name: str
    values: tuple[str, ...]

    def index(self, value: str | None) -> int:
        """Return the number of a value; None and what is not listed is the last one."""
        return self.values.index(value) if value in self.values else len(self.values) - 1


@frozen
class Experiment:
    """An experiment: ``share``, in millionths, of the devices is spread evenly over its arms."""

    name: str
    arms: tuple[str, ...]
    share: int

    def arm(self, secret: bytes, collector: str) -> str | None:
        """Return the arm of a device with a secret of 32 bytes; None if it does not take part.

        A keyed hash of public names alone: no value, time or place has a part in it. A device
        stays where it is if the share grows.

        >>> Experiment("onboarding", ("control", "treatment"), 1_000_000).arm(bytes(32), "fleet")
        'treatment'
        """
        digest = sha256(_ARM + secret + collector.encode() + b"\0" + self.name.encode())
        drawn = int.from_bytes(digest[:16], "little") % (_WHOLE * len(self.arms))
        place, arm = divmod(drawn, len(self.arms))
        return self.arms[arm] if place < self.share else None


@frozen
class PlannedDecision:
    """The metric that decides an experiment, and when: at evenly spaced looks, the last at its end.

    Times are in milliseconds since the epoch: windows count from ``start`` to before ``end``.
    """

    metric: str
    start: int
    end: int
    looks: int

    @property
    def times(self) -> tuple[int, ...]:
        """The times of the looks (ms)."""
        length = self.end - self.start
        return tuple(self.start + length * k // self.looks for k in range(1, self.looks + 1))


def attributes_of(
    segments: Iterable[tuple[str, tuple[str, ...]]], experiment: Experiment | None
) -> tuple[Attribute, ...]:
    """Return a plan's attributes in their order, with the values that nobody lists."""
    found = [Attribute(name, (*values, OTHER)) for name, values in segments]
    if experiment is not None:
        rest = (NO_ARM,) if experiment.share < _WHOLE else ()
        found.append(Attribute(experiment.name, (*experiment.arms, *rest)))
    return tuple(found)


def cells(attributes: Iterable[Attribute]) -> int:
    """Return how many combinations of values there are; 1 without attributes."""
    return prod(len(each.values) for each in attributes)


def crossed(attributes: tuple[Attribute, ...]) -> list[tuple[int, ...]]:
    """Return by which attributes results are broken down: each alone, and two together.

    With three, the two segments are crossed, and the arm of the experiment is by itself.
    """
    alone: list[tuple[int, ...]] = [(at,) for at in range(len(attributes))]
    return [*alone, (0, 1)] if len(attributes) > 1 else alone


def cell_of(attributes: Iterable[Attribute], values: Mapping[str, str | None]) -> int:
    """Return the number of a cell: mixed radix, the first attribute most significant.

    >>> os = Attribute("os", ("linux", "mac", "other"))
    >>> cell_of([os, Attribute("arm", ("a", "none"))], {"os": "mac"})
    3
    """
    number = 0
    for each in attributes:
        number = number * len(each.values) + each.index(values.get(each.name))
    return number


def values_of(attributes: tuple[Attribute, ...], cell: int) -> tuple[str, ...]:
    """Return the value of each attribute in a cell."""
    found = []
    for each in reversed(attributes):
        cell, digit = divmod(cell, len(each.values))
        found.append(each.values[digit])
    return tuple(reversed(found))


def label(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the name of some attributes' values, as tables and documents have it.

    >>> label([("os", "linux"), ("app_version", "2")])
    'os=linux,app_version=2'
    """
    return ",".join(f"{name}={value}" for name, value in pairs)


def cell_label(attributes: tuple[Attribute, ...], cell: int) -> str:
    """Return the name of a cell; empty where there are no attributes."""
    return label(zip((each.name for each in attributes), values_of(attributes, cell), strict=True))


def given_segments(
    segments: Iterable[tuple[str, tuple[str, ...]]], given: object
) -> dict[str, str | None]:
    """Return what an app says its device is, checked against the plan's segments.

    Raises ParameterError if that is no mapping from their names to texts. A value that the plan
    does not list is fine.
    """
    if not isinstance(given, Mapping):
        raise wrong_type("segments", "a mapping, such as {'os': 'linux'}", given)
    named = [name for name, _ in segments]
    for name, value in given.items():
        if name not in named:
            # Not the name that was given: it may be a value in the wrong place.
            has = f"{', '.join(named) or 'none'}{did_you_mean(name, named)}"
            raise ParameterError(f"segments: the plan has no such segment; it has {has}")
        if not (value is None or isinstance(value, str)):
            raise wrong_type(f"segment {name!r}", "a str or None", value)
    return dict(given)


def problems(
    segments: tuple[tuple[str, tuple[str, ...]], ...], experiment: Experiment | None
) -> list[str]:
    """Return what is wrong with a plan's segments and experiment."""
    found = []
    if len(segments) > MAX_SEGMENTS:
        found.append(f"segments: {len(segments)} are given; at most {MAX_SEGMENTS} are allowed")
    for name, values in segments:
        found += _listed(f"segments: {name}", (name, *values), values, OTHER, 1)
    if experiment is not None:
        listed = (experiment.name, *experiment.arms)
        found += _listed("experiment: arms", listed, experiment.arms, NO_ARM, 2)
        if not 0 < experiment.share <= _WHOLE:
            found.append(
                f"experiment: share {experiment.share / _WHOLE} must be above 0 and at most 1"
            )
    attributes = attributes_of(segments, experiment)
    names = [each.name for each in attributes]
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.append(f"segments and experiment: the name {name!r} is given twice")
    number = cells(attributes)
    if number > MAX_CELLS:
        sizes = " x ".join(f"{each.name} {len(each.values)}" for each in attributes)
        found.append(
            f"segments and experiment: {number} cells ({sizes}, with {OTHER!r} or {NO_ARM!r}); "
            f"at most {MAX_CELLS} are allowed: list fewer values"
        )
    return found


def _listed(
    where: str, names: tuple[str, ...], values: tuple[str, ...], implied: str, least: int
) -> list[str]:
    found = [
        f"{where}: {name!r} must consist of {_NAME_RULE}"
        for name in names
        if not re.fullmatch(_NAME, name)
    ]
    if len(values) < least:
        found.append(f"{where}: at least {least} must be listed")
    if len(set(values)) < len(values):
        found.append(f"{where}: a value is given twice")
    if implied in values:
        found.append(f"{where}: {implied!r} is implied, do not list it")
    return found
