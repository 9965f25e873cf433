"""App keys, which say which app a request is from, and never which person.

All installations of an app send the same key, so it is no secret. It lets the operator limit one
app without the others, and remove a key that is abused. The file has only hashes of keys, and is
read again when it changes: to replace a key, add a new one, ship it, and remove the old one later.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sotto.errors import ParameterError
from sotto.files import force
from sotto.plan.files import open_beside, stamp_of

_logger = logging.getLogger(__name__)

_APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class _KeysFile(BaseModel):
    """The file: by app, the SHA-256 of each of its keys in hexadecimal."""

    model_config = ConfigDict(extra="forbid")

    apps: dict[str, list[str]] = Field(default_factory=dict)


class AppKeys:
    """The keys in a file, read again when it changes.

    Parameters
    ----------
    path : Path
    warn : callable
        Called once for each reason why the file cannot be read any more.

    Raises
    ------
    ParameterError
        There is no such file, or it is no file of keys.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] = _logger.warning) -> None:
        self._path = path
        self._warn = warn
        self._warned = ""
        self._stamp = stamp_of(path)
        self._apps = _by_digest(path)

    def app_of(self, key: str) -> str | None:
        """Return the app that a key belongs to; None if it is no app's."""
        # The time of a look-up depends on hashes of keys, and so reveals nothing about keys.
        return self._apps.get(_digest(key))

    def reload(self) -> None:
        """Read the file again if it has changed; keep the present keys if it is damaged."""
        try:
            stamp = stamp_of(self._path)
            if stamp != self._stamp:
                self._apps, self._stamp = _by_digest(self._path), stamp
            self._warned = ""
        except ParameterError as error:
            if self._warned != str(error):
                self._warned = str(error)
                self._warn(f"{error}; the keys that were read before hold")


def new_key(path: Path, app: str) -> str:
    """Make a key for an app, note its hash in the file, and return it: it cannot be read again.

    Raises
    ------
    ParameterError
        The name cannot be an app's, or the file cannot be used.
    """
    if not _APP.fullmatch(app):
        raise ParameterError(
            f"app {app!r} must be 1 to 64 letters, digits, '.', '_' and '-', "
            "a letter or digit first"
        )
    key = secrets.token_urlsafe(24)
    with _changing(path) as content:
        content.apps.setdefault(app, []).append(_digest(key))
    return key


def drop_key(path: Path, key: str) -> str:
    """Remove a key from the file; return whose it was.

    Raises
    ------
    ParameterError
        No app has it.
    """
    digest = _digest(key)
    with _changing(path) as content:
        for app, digests in content.apps.items():
            if digest in digests:
                digests.remove(digest)
                return app
        raise ParameterError(f"{path}: no app has this key")


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _load(path: Path) -> _KeysFile:
    try:
        return _KeysFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ParameterError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise ParameterError(
            f"{path}: no file of app keys ({error.error_count()} faults)"
        ) from None


def _by_digest(path: Path) -> dict[str, str]:
    return {digest: app for app, digests in _load(path).apps.items() for digest in digests}


@contextmanager
def _changing(path: Path) -> Iterator[_KeysFile]:
    """Yield the content of the file, if there is one, and write it back unless the block raises.

    One process at a time does so. Readers find the old content or the new one, also after a loss of
    power. A new file can be read by its owner only.
    """
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        content = _load(path) if path.exists() else _KeysFile()
        yield content
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with open_beside(temporary, path, 0o600) as file:
                file.write(content.model_dump_json(indent=2).encode() + b"\n")
                file.flush()
                force(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        os.fsync(folder)
    finally:
        os.close(folder)
