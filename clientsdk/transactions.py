"""One thread's use of a database, for one ``with`` statement.

An interrupt may arrive at any call. Wherever it does, the lock is let go of and what was not
committed is rolled back: by the statement itself, or, where it was interrupted at its very entry,
when the object goes.
"""

from __future__ import annotations

import itertools
import sqlite3
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING

from clientsdk import schema
from sotto.errors import StoreError

if TYPE_CHECKING:
    from clientsdk.database import Database

_turns = itertools.count(1)


class Access(Enum):
    """What a transaction may do, and what its commit survives."""

    READ = "read"
    """Sees one moment of the store."""
    WRITE = "write"
    """Excludes all other writers; the commit survives the death of the process."""
    DURABLE = "durable"
    """As ``WRITE``, and the commit survives a loss of power."""


#: As names of a module they are found sooner, in every recording, than as those of an Enum.
READ, WRITE, DURABLE = Access


class Hold:
    """Exclusive use of a database by one thread.

    Raises
    ------
    StoreError
        At entry: it is in use, by this very thread or for very long by another.
    """

    __slots__ = ("_database", "_turn")

    _database: Database
    _turn: int

    def __init__(self, database: Database) -> None:
        self._turn = next(_turns)
        self._database = database

    def __enter__(self) -> object:
        self._database.hold(self._turn)
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.let_go()

    def __del__(self) -> None:
        try:
            database = self._database
            interrupted = database.turn == self._turn
        except AttributeError:
            # It was not even made.
            return
        if interrupted:
            # At the very entry of what should have let go.
            database.version = None
            database.let_go()


class Transaction(Hold):
    """A context in which a database is locked and changes as a whole or not at all.

    Raises
    ------
    UnmarkedError
        At exit: what was to change has changed, and that could not be noted beside the file.
    StoreError
        At entry or exit: the store cannot be used now. Nothing has changed.
    """

    __slots__ = ("_access",)

    def __init__(self, database: Database, access: Access) -> None:
        self._turn = next(_turns)
        self._database = database
        self._access = access

    def __enter__(self) -> sqlite3.Connection:
        database = self._database
        try:
            database.hold(self._turn)
            return database.begin(self._access)
        except BaseException as error:
            if database.turn == self._turn:
                database.version = None
                database.let_go()
            if isinstance(error, schema.FAULTS):
                raise _unusable(error) from error
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        database, committed = self._database, False
        try:
            if error is None:
                database.commit(self._access)
                committed = True
                if self._access is DURABLE:
                    database.vouch()
        except schema.FAULTS as failure:
            raise _unusable(failure) from failure
        finally:
            if committed:
                database.release()
            else:
                # What is kept in memory may be ahead of the file: read it again next time.
                database.version = None
                database.let_go()
        if isinstance(error, schema.FAULTS):
            raise _unusable(error) from error


def _unusable(error: BaseException) -> StoreError:
    return schema.unusable("the device's store cannot be used", error)
