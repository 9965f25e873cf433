"""Notes the forgotten pseudonyms of a state directory beside it, for restores of older backups.

A backup still has the pseudonyms that were forgotten after it was made. So their tombstones are
also kept outside of the state directory, in ``STATE.forgotten``, and a restore forgets them again.
Entries are never removed, since a backup may be of any age.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pipelines.storage import files
from sotto.errors import AggregationError

FORMAT = 1


def place_of(state_dir: str | os.PathLike[str]) -> Path:
    """Return where the tombstones of a state directory are noted."""
    # Absolute: "." has no name that a file beside it could take.
    return Path(os.path.realpath(state_dir) + ".forgotten")


def noted(file: Path, state: str) -> dict[str, int]:
    """Return the tombstones, with their last periods, of the state with a random name.

    Raises AggregationError if the file is missing, damaged, or has nothing of the state.
    """
    states = _read(file)
    if state not in states:
        raise AggregationError(
            f"{file} does not say who was forgotten in state {state[:8]}: the backup may bring "
            "forgotten pseudonyms back; give --forgotten FILE, the STATE.forgotten that lay "
            "beside the directory that is lost, or --forgotten none"
        )
    return states[state]


def note(state_dir: str | os.PathLike[str], state: str, tombstones: Mapping[str, int]) -> bool:
    """Add tombstones of a state to the file beside it, durably; return whether that was possible.

    It is not possible if the folder of the state directory takes no file, such as above a mount
    point.

    Raises AggregationError if there is a file that is damaged or cannot be replaced, and so would
    lack the tombstones.
    """
    file = place_of(state_dir)
    try:
        states = _read(file)
        before = states.get(state)
        states[state] = {**(before or {}), **tombstones}
        if states[state] != before:
            content = files.dump_document({"format": FORMAT, "states": states})
            files.replace(file, content, mode=0o600)
    except OSError as error:
        if file.exists():
            raise AggregationError(f"{file} cannot be replaced: {error.strerror}") from error
        return False
    return True


def _read(file: Path) -> dict[str, dict[str, int]]:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return {}
    states: dict[str, dict[str, int]] = files.load_document(content, str(file), FORMAT)["states"]
    return states
