"""A small file system, in memory, that is full when it is told to be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from deploy.errors import DeployError

_PAGE = 4096
_ROOM = 4 << 30


class Disk:
    """A file system of its own at a folder; mounting one takes root's rights.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.

    Raises
    ------
    DeployError
        It cannot be mounted.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        _call("mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "tmpfs", str(folder))

    def leave(self, free: int) -> None:
        """Let no more than so many bytes be free."""
        used = shutil.disk_usage(self.folder).used
        size = (used + free + _PAGE - 1) // _PAGE * _PAGE
        _call("mount", "-o", f"remount,size={size}", str(self.folder))

    def make_room(self) -> None:
        """Let there be plenty."""
        _call("mount", "-o", f"remount,size={_ROOM}", str(self.folder))

    def close(self) -> None:
        """Unmount it; what was on it is gone."""
        _call("umount", str(self.folder))


def disk_at(folder: Path) -> Disk | None:
    """Return a file system at a folder; None, and say so, where none can be mounted."""
    try:
        return Disk(folder)
    except DeployError as error:
        print(f"no disk that can be filled: {error}", flush=True)
        return None


def _call(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        raise DeployError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        raise DeployError(f"{' '.join(command)} failed: {done.stderr.strip()}")
