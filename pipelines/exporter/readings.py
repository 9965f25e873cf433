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

#: How often a source is read if files vanish meanwhile, as they do in a commit.
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
    value: T | None = None  #: the value, if the status is ``ok``
    problem: str = ""  #: why there is no value, for a log


def read(reader: Callable[[], T]) -> Reading[T]:
    """Read a source in whatever state it is; read it again if files vanish, as in a commit."""
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
            # in an unforeseen way; the other sources must be served all the same. The error's text
            # is not logged, since it may repeat the content.
            return Reading(Status.DAMAGED, problem=type(error).__name__)
    raise AssertionError("unreachable")
