"""What reading a source came to: a value, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from sotto.errors import AggregationError, BrokerError, SottoError

T = TypeVar("T")

#: A commit between two reads makes both be made again.
ATTEMPTS = 5


class Status(StrEnum):
    """What a source is."""

    OK = "ok"
    MISSING = "missing"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"


class MissingError(AggregationError):
    """The source is not there, or not yet."""


class UnreadableError(AggregationError):
    """The source may be there, but cannot be read now."""


@dataclass(frozen=True)
class Source(Generic[T]):
    """A reading of one source.

    Parameters
    ----------
    status : Status
    value : T or None
        Where the status is ``ok``.
    problem : str
        Why there is none, for a log.
    """

    status: Status
    value: T | None = None
    problem: str = ""


def read(reader: Callable[[], T]) -> Source[T]:
    """Read a source, whatever state it is in.

    Parameters
    ----------
    reader : callable
        Reads; asked again where files vanish under it, as they do in a commit.
    """
    for attempt in range(ATTEMPTS):
        try:
            return Source(Status.OK, reader())
        except MissingError as error:
            return Source(Status.MISSING, problem=str(error))
        except FileNotFoundError as error:
            if attempt + 1 == ATTEMPTS:
                return Source(Status.UNREADABLE, problem=str(error))
        except (UnreadableError, BrokerError, OSError) as error:
            return Source(Status.UNREADABLE, problem=str(error))
        except SottoError as error:
            return Source(Status.DAMAGED, problem=str(error))
        except Exception as error:
            # A document of the right format may hold what no run ever wrote, and a library fail
            # as nobody foresaw: the other sources are served all the same. What such an error
            # says may be what it could not read.
            return Source(Status.DAMAGED, problem=type(error).__name__)
    raise AssertionError("unreachable")
