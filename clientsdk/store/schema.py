"""The device's file: its tables, older versions of them, and how a connection is opened."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import suppress
from sqlite3 import Connection

from mechanisms.digests import sha256
from sotto.errors import PlanError, StoreError
from sotto.files import make_private, open_file
from sotto.plan.compiled import brought_forward

VERSION = 7
APPLICATION = 0x534F5454  # "SOTT"
#: Later than any report is due, in milliseconds since the epoch.
NEVER = 1 << 63
DAMAGED = "the device's store cannot be used: it is damaged"
#: Seconds to wait for another process that is writing, and between two attempts.
PATIENCE = 2.0
PAUSE = 0.001
#: Bytes of a page, in a new file, and of the log before it is moved into the file. A recording
#: changes two pages, and the smaller they are the less of them is written that has not changed.
PAGE = 1 << 11
LOG = 1 << 22
#: Milliseconds to wait for other processes that read, before the log is emptied later.
SCRUB_PATIENCE = 100
#: Seconds to wait for another thread of this process, which may itself wait for a process.
LOCK_PATIENCE = 10.0

# One row a chain, one row a period. Secret and pseudonyms have tables of their own: their rows
# keep their size and place, so that overwriting one leaves no copy elsewhere in the file.
_TABLES = (
    """CREATE TABLE device (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        store BLOB NOT NULL,
        collector TEXT NOT NULL,
        period_ms INTEGER NOT NULL,
        ceiling_period INTEGER NOT NULL,
        ceiling_lifetime INTEGER NOT NULL,
        consent TEXT NOT NULL,
        consents INTEGER NOT NULL,
        period INTEGER NOT NULL,
        erasures_owed INTEGER NOT NULL,
        erasures_done INTEGER NOT NULL
    )""",
    "CREATE TABLE secret (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL)",
    """CREATE TABLE ledger (
        period INTEGER PRIMARY KEY,
        reserved INTEGER NOT NULL,
        spent INTEGER NOT NULL,
        tallies TEXT NOT NULL,
        CHECK (spent BETWEEN 0 AND reserved)
    )""",
    "CREATE TABLE pseudonym (period INTEGER PRIMARY KEY, value BLOB NOT NULL)",
    """CREATE TABLE plan (
        id INTEGER PRIMARY KEY, fingerprint BLOB NOT NULL UNIQUE, body BLOB NOT NULL
    )""",
    """CREATE TABLE chain (
        period INTEGER NOT NULL,
        due INTEGER NOT NULL,
        id BLOB NOT NULL,
        plan INTEGER NOT NULL,
        metric INTEGER NOT NULL,
        event INTEGER NOT NULL,
        jitter INTEGER NOT NULL,
        charged INTEGER NOT NULL,
        delivered INTEGER NOT NULL,
        payloads BLOB NOT NULL,
        PRIMARY KEY (period, due, id)
    ) WITHOUT ROWID""",
    """CREATE TABLE reservoir (
        tally TEXT PRIMARY KEY, due INTEGER NOT NULL, chain BLOB NOT NULL, cost INTEGER NOT NULL
    ) WITHOUT ROWID""",
)
#: What the tables of version 2 lack: permanent responses, the parts of the ledger that they have
#: paid for, and who counts the items of a period.
_SINCE_3 = (
    """CREATE TABLE permanent (
        binding BLOB PRIMARY KEY,
        tally TEXT NOT NULL,
        cost INTEGER NOT NULL CHECK (cost > 0),
        response BLOB NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE degraded (
        period INTEGER PRIMARY KEY,
        reserved INTEGER NOT NULL,
        spent INTEGER NOT NULL,
        CHECK (spent BETWEEN 0 AND reserved)
    )""",
    """CREATE TABLE counting (
        period INTEGER NOT NULL,
        tally TEXT NOT NULL,
        holder BLOB NOT NULL,
        cost INTEGER NOT NULL,
        last INTEGER NOT NULL,
        PRIMARY KEY (period, tally)
    ) WITHOUT ROWID""",
)
#: What those of version 3 lack, for the rollback guard: how many commits have survived a loss of
#: power, and what was spent before the file was damaged, lost, or replaced by an older copy.
_SINCE_4 = (
    """CREATE TABLE mark (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        generation INTEGER NOT NULL,
        carried INTEGER NOT NULL CHECK (carried >= 0),
        damaged INTEGER NOT NULL,
        restored INTEGER NOT NULL
    )""",
    "INSERT INTO mark VALUES (1, 0, 0, 0, 0)",
)
#: What those of version 4 lack: the secret that decides in which periods the device answers, and
#: the keys that sign messages of a period. Their plans were known by the hash of the whole
#: document, then called a fingerprint, and had no column for their expiry (ms; NULL if absent).
_SINCE_5 = (
    """CREATE TABLE panel (
        id INTEGER PRIMARY KEY CHECK (id = 1), secret BLOB NOT NULL, since INTEGER NOT NULL
    )""",
    """CREATE TABLE signing (
        period INTEGER PRIMARY KEY, pseudonym BLOB NOT NULL, seed BLOB NOT NULL
    )""",
    "ALTER TABLE plan RENAME COLUMN fingerprint TO digest",
    "ALTER TABLE plan ADD COLUMN expires INTEGER",
)
#: What those of version 5 lack: what was said of each group of metrics.
_SINCE_6 = (
    "CREATE TABLE consent_group (name TEXT PRIMARY KEY, consent TEXT NOT NULL) WITHOUT ROWID",
)
#: What those of version 6 lack: the cell of the plan's segments in which a value was recorded, and
#: the secret that decides about an experiment's arm.
_SINCE_7 = (
    "ALTER TABLE chain ADD COLUMN cell INTEGER NOT NULL DEFAULT 0",
    "CREATE TABLE arm (id INTEGER PRIMARY KEY CHECK (id = 1), secret BLOB NOT NULL)",
)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
#: What SQLite raises; its error about damaged names of tables is no valid text.
FAULTS = (sqlite3.Error, UnicodeDecodeError)


class DamagedError(StoreError):
    """The device's file is damaged; it is set aside at the next start."""


def connect(path: str | None, *, create: bool) -> Connection:
    try:
        if path is None:
            return _configured(_opened(":memory:"))
        if create:
            _restrict(path)
        deadline = time.monotonic() + PATIENCE
        connection = _opened(uri_of(path))
        try:
            while True:
                try:
                    return _write_ahead(_configured(connection))
                except sqlite3.OperationalError as error:
                    # Two processes that create one file at once may meet here.
                    if not is_busy(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(PAUSE)
        except BaseException:
            # Windows renames no file that is open, and a damaged one is set aside.
            connection.close()
            raise
    except (OSError, *FAULTS) as error:
        raise unusable("cannot open the device's store", error) from error


def uri_of(path: str) -> str:
    """Return the SQLite URI of an existing file, to be read and written, by its absolute path.

    >>> uri_of("/home/someone/what?/100%.db")
    'file:///home/someone/what%3F/100%25.db?mode=rw'
    """
    for letter in "%?#":
        path = path.replace(letter, f"%{ord(letter):02X}")
    if os.sep != "/":
        # A drive follows a slash; a share begins with one.
        path = path.replace(os.sep, "/")
        path = path if path.startswith("/") else f"/{path}"
    return f"file://{path}?mode=rw"


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Whether another process or thread is in the way, and waiting may help."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damage(error: BaseException) -> bool:
    if isinstance(error, UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF in _DAMAGE


def unusable(what: str, error: BaseException) -> StoreError:
    if not is_damage(error):
        # Without the path that an OSError names.
        return StoreError(f"{what}: {getattr(error, 'strerror', None) or error}")
    return DamagedError(f"{what}: {error if isinstance(error, sqlite3.Error) else 'it is damaged'}")


def examine(connection: Connection) -> bool:
    """Check a device's whole file; return whether nothing is in it yet."""
    if connection.execute("PRAGMA application_id").fetchone() == (APPLICATION,):
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise DamagedError(DAMAGED)
        return False
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return not objects


def prepare(connection: Connection) -> bool:
    """Create the tables if there are none, migrate older ones; return whether all are new."""
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    version = check(connection) if objects else 0
    if version == VERSION:
        return False
    since = {1: _TABLES, 3: _SINCE_3, 4: _SINCE_4, 5: _SINCE_5, 6: _SINCE_6, 7: _SINCE_7}
    for first, tables in since.items():
        for table in tables if version < first else ():
            connection.execute(table)
    if objects and version < 5:
        _migrate_plans(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    return not objects


def check(connection: Connection) -> int:
    """Return the version of a device's store; StoreError if it is another's, or cannot be read."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise StoreError("the state file is a database of another application")
    if not 2 <= version <= VERSION:
        raise StoreError(f"the state file has schema {version}; this version reads 2 to {VERSION}")
    return int(version)


def _migrate_plans(connection: Connection) -> None:
    """Write plans of format 1 anew, and of all when they expire; one that is unreadable is left."""
    for number, body in connection.execute("SELECT id, body FROM plan").fetchall():
        with suppress(PlanError):
            document = brought_forward(body)
            if document is not None:
                connection.execute(
                    "UPDATE plan SET digest = ?, body = ? WHERE id = ?",
                    (sha256(document), document, number),
                )
        with suppress(ValueError, TypeError, KeyError):
            expires = int(json.loads(body)["expires"])
            connection.execute("UPDATE plan SET expires = ? WHERE id = ?", (expires, number))


def _opened(database: str) -> Connection:
    return sqlite3.connect(
        database, timeout=0, isolation_level=None, check_same_thread=False, uri=True
    )


def _configured(connection: Connection) -> Connection:
    for pragma in ("secure_delete = ON", "temp_store = MEMORY", "fullfsync = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _write_ahead(connection: Connection) -> Connection:
    # Of a file that has pages already, theirs remains.
    connection.execute(f"PRAGMA page_size = {PAGE}")
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        # Of a file without a page there is nothing that a journal could bring back.
        connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {LOG // PAGE}")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _restrict(path: str) -> None:
    # SQLite gives the write-ahead log and its index the permissions of the database. An existing
    # file is not opened here: closing it again would drop the locks that this process holds on it.
    try:
        os.close(open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        make_private(path)
