"""The device's file: its tables, and how a connection is opened."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from sqlite3 import Connection

from clientsdk.diagnostics import store_name
from sotto.errors import StoreError
from sotto.files import make_private, open_file

VERSION = 8
#: The last one without measures, whose tables are added.
_BEFORE_MEASURES = 7
#: A store has this in its header, and :data:`TABLE` elsewhere.
LABEL = b"SOTT"
APPLICATION = int.from_bytes(LABEL, "big")
TABLE = b"CREATE TABLE pseudonym (period INTEGER PRIMARY KEY"
#: Later than any report is due, in milliseconds since the epoch.
NEVER = 1 << 63
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
    # ``expires`` in ms.
    """CREATE TABLE plan (
        id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL, expires INTEGER
    )""",
    # ``cell``: that of the plan's segments in which the value was recorded.
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
        cell INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (period, due, id)
    ) WITHOUT ROWID""",
    """CREATE TABLE reservoir (
        tally TEXT PRIMARY KEY, due INTEGER NOT NULL, chain BLOB NOT NULL, cost INTEGER NOT NULL
    ) WITHOUT ROWID""",
    # Permanent responses, and the parts of the ledger that they have paid for.
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
    # Claims: which client counts the items of a period.
    """CREATE TABLE counting (
        period INTEGER NOT NULL,
        tally TEXT NOT NULL,
        holder BLOB NOT NULL,
        cost INTEGER NOT NULL,
        last INTEGER NOT NULL,
        PRIMARY KEY (period, tally)
    ) WITHOUT ROWID""",
    # For the rollback guard: how many commits have survived a loss of power, and what was spent
    # before the file was damaged, lost, or replaced by an older copy.
    """CREATE TABLE mark (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        generation INTEGER NOT NULL,
        carried INTEGER NOT NULL CHECK (carried >= 0),
        damaged INTEGER NOT NULL,
        restored INTEGER NOT NULL
    )""",
    "INSERT INTO mark VALUES (1, 0, 0, 0, 0)",
    # Secrets that decide in which periods the device answers, and in which arm of an experiment it
    # is; and the keys that sign messages of a period.
    """CREATE TABLE panel (
        id INTEGER PRIMARY KEY CHECK (id = 1), secret BLOB NOT NULL, since INTEGER NOT NULL
    )""",
    "CREATE TABLE arm (id INTEGER PRIMARY KEY CHECK (id = 1), secret BLOB NOT NULL)",
    """CREATE TABLE signing (
        period INTEGER PRIMARY KEY, pseudonym BLOB NOT NULL, seed BLOB NOT NULL
    )""",
    "CREATE TABLE consent_group (name TEXT PRIMARY KEY, consent TEXT NOT NULL) WITHOUT ROWID",
)
_MEASURES = (
    # Each row of a measure keeps its size, and its place in a table apart from its index.
    """CREATE TABLE measure (
        tally TEXT PRIMARY KEY,
        period INTEGER NOT NULL,
        plan INTEGER NOT NULL,
        metric INTEGER NOT NULL,
        cell INTEGER NOT NULL,
        state BLOB NOT NULL
    )""",
    "CREATE TABLE first_use (tally TEXT PRIMARY KEY, period INTEGER NOT NULL) WITHOUT ROWID",
)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
#: Errors that SQLite raises; its error about damaged names of tables is no valid text.
FAULTS = (sqlite3.Error, UnicodeDecodeError)


class DamagedError(StoreError):
    """The device's file is damaged, or of an earlier version; it is set aside at the next start."""


def connect(path: str | None, *, create: bool) -> Connection:
    try:
        if path is None:
            return _configured(_opened(":memory:"))
        if create:
            _restrict(path)
        else:
            make_private(path)
        deadline = time.monotonic() + PATIENCE
        connection = _opened(uri_of(path))
        try:
            while True:
                try:
                    return _write_ahead(_configured(connection))
                except sqlite3.OperationalError as error:
                    # Two processes that create the same file at once may get here.
                    if not is_busy(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(PAUSE)
        except BaseException:
            # Windows renames no open file, and a damaged one must be renamed to be set aside.
            connection.close()
            raise
    except (OSError, *FAULTS) as error:
        fault = unusable(f"cannot open {store_name(path)}", error)
        if not isinstance(fault, DamagedError):
            fault = StoreError(f"{fault}; state must be a file in a folder that the app may write")
        raise fault from error


def uri_of(path: str) -> str:
    """Return the SQLite URI of an existing file, to be read and written, by its absolute path.

    >>> uri_of("/home/someone/what?/100%.db")
    'file:///home/someone/what%3F/100%25.db?mode=rw'
    """
    for letter in "%?#":
        path = path.replace(letter, f"%{ord(letter):02X}")
    if os.sep != "/":
        # A path with a drive needs a slash before it; a share begins with one.
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


def name_of(connection: Connection) -> str:
    """Return how messages name the store that a connection is open to.

    The name is left out where it is no text: SQLite's own error would have the whole path.
    """
    path = None
    with suppress(sqlite3.Error):
        _, _, path = connection.execute("PRAGMA database_list").fetchone()
    return store_name(path)


def damaged(connection: Connection) -> DamagedError:
    return DamagedError(f"{name_of(connection)} cannot be used: it is damaged")


def examine(connection: Connection) -> bool:
    """Check a device's whole file; return whether nothing is in it yet."""
    if connection.execute("PRAGMA application_id").fetchone() == (APPLICATION,):
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise damaged(connection)
        return False
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return not objects


def prepare(connection: Connection) -> bool:
    """Create the tables that are not there, and return whether there were none."""
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if objects and check(connection) == VERSION:
        return False
    for statement in _MEASURES if objects else _TABLES + _MEASURES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    return not objects


def check(connection: Connection) -> int:
    """Return a store's version; StoreError if a file is no device's or cannot be read here.

    A file of a version too old to be read is a DamagedError: the app goes on with another file,
    which charges for all that this one may have spent.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        other = "a database of another application: name a file of its own"
        raise StoreError(f"{name_of(connection)} is {other if objects else 'empty'}")
    found = f"{name_of(connection)} has schema {version}; this version reads {VERSION}"
    if version < _BEFORE_MEASURES:
        raise DamagedError(f"{found}: an app sets it aside, and its period counts as spent")
    if version > VERSION:
        raise StoreError(found)
    return int(version)


def _opened(database: str) -> Connection:
    return sqlite3.connect(
        database, timeout=0, isolation_level=None, check_same_thread=False, uri=True
    )


def _configured(connection: Connection) -> Connection:
    for pragma in ("secure_delete = ON", "temp_store = MEMORY", "fullfsync = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _write_ahead(connection: Connection) -> Connection:
    # A file that already has pages keeps its page size.
    connection.execute(f"PRAGMA page_size = {PAGE}")
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        # A file without a page has nothing that a journal could bring back.
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
