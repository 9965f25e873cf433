"""How the last drain went, for those who watch: a note beside what is committed, no part of it.

The wall clock is in it, and so it is not in the manifest, which is a function of what was
drained. Nothing is decided by it; where it is lost, the next drain writes it again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pipelines.storage import files
from pipelines.storage.intent import dump, load
from sotto.errors import DrainError

FORMAT = 2
NAME = "drain.json"


@dataclass(frozen=True)
class LastDrain:
    """A note about the last drain.

    Parameters
    ----------
    generation : int
        The last one that was committed and projected.
    looked : int
        When the log was last drained to its end, or a drain of it finished, ms of the wall clock.
    finished : int or None
        When that generation was, ms of the wall clock; None if by no drain that left a note.
    seconds : float or None
        How long its drain took, from its intent to the projection of its results.
    """

    generation: int
    looked: int
    finished: int | None = None
    seconds: float | None = None

    def to_json(self) -> bytes:
        """Return the note as it is stored."""
        return dump({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, content: bytes) -> LastDrain:
        """Return the stored note.

        Raises
        ------
        DrainError
            It is not one, or of an unknown format.

        Examples
        --------
        >>> note = LastDrain(3, 1_700_000_000_000, 1_700_000_000_000, 2.5)
        >>> LastDrain.from_json(note.to_json()) == note
        True
        """
        value = load(content, NAME, FORMAT)
        try:
            return cls(value["generation"], value["looked"], value["finished"], value["seconds"])
        except KeyError as error:
            raise DrainError(f"{NAME} is damaged") from error

    @classmethod
    def of(cls, state_dir: Path) -> LastDrain | None:
        """Return the note in a state directory; None if there is none.

        Raises
        ------
        DrainError
            It cannot be read as one.
        """
        try:
            return cls.from_json((state_dir / NAME).read_bytes())
        except FileNotFoundError:
            return None

    def leave(self, state_dir: Path) -> None:
        """Leave the note in a state directory, or none where that is not possible.

        What is committed is so without it: a full disk does not undo a drain.
        """
        with suppress(OSError):
            try:
                files.write(state_dir / NAME, [self.to_json()])
            except OSError:
                (state_dir / f"{NAME}.tmp").unlink()
