"""App keys: they say which app a request is from, and never which person.

All installations of an app send the same key, so that it is no secret; it lets the operator limit
one app without the others, and end a key that is abused. The file holds hashes of keys alone, and
is read again when it changes: a new key is added, shipped, and the old one removed later.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sotto.errors import ParameterError

_APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class _File(BaseModel):
    """The file: by app, the SHA-256 of each of its keys in hexadecimal."""

    model_config = ConfigDict(extra="forbid")

    apps: dict[str, list[str]] = Field(default_factory=dict)


class AppKeys:
    """The keys in a file.

    Raises
    ------
    ParameterError
        There is no such file, or it is not one of keys.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._apps: dict[str, str] = {}
        self._read(self._stamp_now())

    def app_of(self, key: str) -> str | None:
        """Return the app that a key belongs to, None if none does."""
        # The time of a look-up says something about hashes at most, never about keys.
        return self._apps.get(_digest(key))

    def reload(self) -> None:
        """Read the file again if it has changed; keep what was read if it cannot be read now."""
        try:
            stamp = self._stamp_now()
            if stamp != self._stamp:
                self._read(stamp)
        except ParameterError:
            return

    def _stamp_now(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise ParameterError(f"{self._path}: {error.strerror}") from None
        return found.st_mtime_ns, found.st_size

    def _read(self, stamp: tuple[int, int]) -> None:
        apps = _load(self._path).apps
        self._apps = {digest: app for app, digests in apps.items() for digest in digests}
        self._stamp = stamp


def new_key(path: Path, app: str) -> str:
    """Make a key for an app, note its hash in the file, and return it: it cannot be read again.

    Raises
    ------
    ParameterError
        The name is no app's, or the file cannot be used.
    """
    if not _APP.fullmatch(app):
        raise ParameterError(
            f"app {app!r} must be 1 to 64 letters, digits, '.', '_' and '-', "
            "a letter or digit first"
        )
    content = _load(path) if path.exists() else _File()
    key = secrets.token_urlsafe(24)
    content.apps.setdefault(app, []).append(_digest(key))
    _save(path, content)
    return key


def drop_key(path: Path, key: str) -> str:
    """Remove a key from the file; return whose it was.

    Raises
    ------
    ParameterError
        No app has it.
    """
    content, digest = _load(path), _digest(key)
    for app, digests in content.apps.items():
        if digest in digests:
            digests.remove(digest)
            _save(path, content)
            return app
    raise ParameterError(f"{path}: no app has this key")


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _load(path: Path) -> _File:
    try:
        return _File.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ParameterError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise ParameterError(
            f"{path}: no file of app keys ({error.error_count()} faults)"
        ) from None


def _save(path: Path, content: _File) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(content.model_dump_json(indent=2) + "\n")
    os.replace(temporary, path)
