"""A folder of plan files that is looked at again and again while a command runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sotto.errors import ParameterError

_ENDINGS = (".json", ".yaml", ".yml")


class PlanFileFolder:
    """The plan files of a folder. What cannot be used is left out, with one warning a reason.

    Raises ParameterError if there is no such folder.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        if not path.is_dir():
            raise ParameterError(f"--plans {path}: there is no such folder")
        self._path = path
        self._warn = warn
        self._warned: dict[Path, str] = {}

    def files(self) -> list[Path]:
        """Return the files, by name; none where the folder cannot be read now."""
        try:
            found = sorted(self._path.iterdir())
        except OSError as error:
            self.leave_out(self._path, error.strerror)
            return []
        self.accept(self._path)
        return [path for path in found if path.suffix in _ENDINGS and not path.name.startswith(".")]

    def leave_out(self, path: Path, why: object) -> None:
        """Warn that a file is not used, unless the last warning said the same."""
        if self._warned.get(path) != str(why):
            self._warned[path] = str(why)
            self._warn(f"{path} is left out: {why}")

    def accept(self, path: Path) -> None:
        """Note that a file is used: what keeps it out later is warned of again."""
        self._warned.pop(path, None)
