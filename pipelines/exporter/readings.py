"""A reading of a source: a value, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pipelines.results.database import UnreadableError
from pipelines.sources.base import MissingError
from sotto.errors import BrokerError, SottoError

T = TypeVar("T")

#: A commit between two reads makes both be made again.
ATTEMPTS = 5


class Status(StrEnum):
    """The state of a source."""

    OK = "ok"
    MISSING = "missing"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Reading(Generic[T]):
    """A reading of one source."""

    status: Status
    value: T | None = None  #: where the status is ``ok``
    problem: str = ""  #: why there is none, for a log


def read(reader: Callable[[], T]) -> Reading[T]:
    """Read a source, whatever state it is in; again where files vanish, as they do in a commit."""
    for attempt in range(ATTEMPTS):
        try:
            return Reading(Status.OK, reader())
        except MissingError as error:
            return Reading(Status.MISSING, problem=str(error))
        except FileNotFoundError as error:
            if attempt + 1 == ATTEMPTS:
                return Reading(Status.UNREADABLE, problem=str(error))
        except (UnreadableError, BrokerError, OSError) as error:
            return Reading(Status.UNREADABLE, problem=str(error))
        except SottoError as error:
            return Reading(Status.DAMAGED, problem=str(error))
        except Exception as error:
            # A document of the right format may hold what no run ever wrote, and a library may fail
            # in an unforeseen way: the other sources are served all the same. The message of such
            # an error may be what it could not read.
            return Reading(Status.DAMAGED, problem=type(error).__name__)
    raise AssertionError("unreachable")
