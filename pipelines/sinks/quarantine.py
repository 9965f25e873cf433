"""Rejects as records of the topic ``NAME-quarantine`` or as files, and how they are requeued.

Aggregation runs and streaming jobs publish rejects as records of that topic, at least once: a
record that comes again has the same key and job. Rejects that can be cured are sent back through
the topic ``NAME-requeue``. The timestamp of its records is the append time by which they were
judged first; whoever may write to that topic decides when a report arrived, so only operators may.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from pipelines.aggregation import quarantine
from pipelines.storage import files
from sotto.clocks import now_ms
from sotto.errors import FormatError, ParameterError
from sotto.wire.decode import Reject
from sotto.wire.format import HEADER, MAGIC, MAX_MESSAGE, VERSIONS
from sotto.wire.reasons import Reason

SCHEMA = 1

#: The reasons that a plan, a newer version of Sotto, or time can cure. A group of a known plan
#: whose metric or width is not the plan's never becomes right: the fingerprint binds the plan.
CURABLE = (Reason.UNKNOWN_VERSION, Reason.UNKNOWN_PLAN, Reason.FUTURE)

#: How far, in ms, the time of a record may be ahead of the broker's clock.
AHEAD = 3_600_000

Headers: TypeAlias = tuple[tuple[str, bytes], ...]

_FIELDS = ("sotto-quarantine", "reason", "append", "rows", "length", "job")


class Record(NamedTuple):
    """A record of either topic, as a producer takes it."""

    key: bytes | None
    value: bytes
    headers: Headers
    timestamp: int | None = None  #: milliseconds; None for the time of publishing
    partition: int | None = None  #: None for the one that the key says


@dataclass(frozen=True)
class Entry:
    """A record of the quarantine topic."""

    reject: Reject  #: its message may have been cut to ``MAX_MESSAGE`` bytes
    job: str  #: random name of the deployment that rejected it
    key: bytes  #: names the reject within its job, the same each time it is published
    length: int  #: bytes of the message before it was cut


def quarantine_record(reject: Reject, job: str, key: bytes | None = None) -> Record:
    """Return a reject as a record of the quarantine topic.

    ``job``: random name of the deployment, ASCII. ``key``: tells the reject from all others of the
    job; by default a digest, which is the same for rejects with the same reason, time and bytes.

    >>> record = quarantine_record(Reject(Reason.LATE, b"what", 5, 1), "job", b"7.0")
    >>> entry = parse(*record[:3])
    >>> entry.reject.reason.label, entry.reject.append, entry.key
    ('late', 5, b'7.0')
    """
    fields = (SCHEMA, reject.reason.label, reject.append, reject.rows, len(reject.message), job)
    headers = tuple(
        (name, str(value).encode()) for name, value in zip(_FIELDS, fields, strict=True)
    )
    value = reject.message[:MAX_MESSAGE]
    return Record(_digest(reject) if key is None else key, value, headers)


def key_of(generation: int, number: int, reject: Reject) -> bytes:
    """Return the key of a run's reject: its place in a generation's file, and a digest.

    The digest tells apart rejects of two copies of a state directory that went different ways.

    >>> key_of(7, 0, Reject(Reason.LATE, b"what", 5, 1))
    b'7.0.204d3a4c'
    """
    return b"%d.%d.%s" % (generation, number, _digest(reject).hex()[:8].encode())


def parse(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes]]) -> Entry:
    """Return the entry of a record of the quarantine topic."""
    found = dict(headers)
    try:
        schema, label, append, rows, length, job = (found[name].decode() for name in _FIELDS)
        reject = Reject(Reason[label.upper()], value or b"", int(append), int(rows))
        entry = Entry(reject, job, key or b"", int(length))
        struct.pack("<qIQ", reject.append, reject.rows, entry.length)
    except (KeyError, ValueError, AttributeError, struct.error) as error:
        raise FormatError("this is no record of a quarantine topic") from error
    if schema != str(SCHEMA):
        raise FormatError(f"a quarantine record has schema {schema}; this version reads {SCHEMA}")
    return entry


def is_curable(reject: Reject, reasons: Collection[Reason], now: int) -> bool:
    """Return whether a reject has one of some reasons and may count by ``now``, ms.

    A record that was ahead of the reader's clock may count once its append time is not later than
    ``now``. A report that was ahead of its own record never may.

    >>> ahead = Reject(Reason.FUTURE, b"what", append=5)
    >>> is_curable(ahead, CURABLE, now=4), is_curable(ahead, CURABLE, now=5)
    (False, True)
    >>> is_curable(ahead._replace(rows=1), CURABLE, now=5)
    False
    """
    if reject.reason is Reason.FUTURE and (reject.rows or reject.append > now):
        return False
    return reject.reason in reasons


def requeue_record(entry: Entry) -> Record:
    """Return a quarantined message as a record of the requeue topic."""
    reject = entry.reject
    if reject.reason not in CURABLE:
        raise FormatError(f"what was rejected as {reject.reason.label} cannot be requeued")
    if not 0 <= reject.append <= now_ms() + AHEAD:
        raise FormatError("what was appended before 1970, or will be, cannot be requeued")
    headers = (("reason", reject.reason.label.encode()), ("job", entry.job.encode()))
    return Record(entry.key, reject.message, headers, reject.append)


def check_reasons(reasons: Collection[Reason]) -> None:
    """Raise ParameterError unless all of these reasons can be cured, and there is one."""
    can = ", ".join(reason.label for reason in CURABLE)
    for reason in reasons:
        if reason not in CURABLE:
            raise ParameterError(
                f"what was rejected as {reason.label} would be rejected again whatever is "
                f"loaded: {can} can be requeued"
            )
    if not reasons:
        raise ParameterError(f"reasons are missing: {can} can be requeued")


def plan_of(message: bytes) -> bytes | None:
    """Return the fingerprint of the plan that a message names; None if its version is not known.

    >>> plan_of(HEADER.pack(MAGIC, 1, 0, 0, 1, bytes(32))) == bytes(32)
    True
    """
    if len(message) < HEADER.size:
        return None
    magic, version, _, _, _, fingerprint = HEADER.unpack_from(message)
    known = magic == MAGIC and version in VERSIONS
    return bytes(fingerprint) if known else None


def _digest(reject: Reject) -> bytes:
    head = f"{reject.reason:d} {reject.append} {reject.rows} ".encode()
    return hashlib.sha256(b"sotto.quarantine\0" + head + reject.message).digest()[:16]


class RejectsFolder:
    """Writes a pipeline's packed rejects to a folder, each to a file named by its content."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, items: Sequence[bytes]) -> None:
        folder = Path(self._folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for item in items:
            path = folder / hashlib.sha256(item).hexdigest()
            if not path.exists():
                # Each of several attempts at a bundle writes a file of its own.
                attempt = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
                files.create(attempt, files.with_checksum(quarantine.KIND, item))
                files.move([(attempt, path)])

    def close(self) -> None: ...
