"""How the last run went, for those who watch: a note beside what is committed, no part of it.

The wall clock is in it, and so it is not in the manifest, which is a function of what was
aggregated. Nothing is decided by it; where it is lost, the next run writes it again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pipelines.storage import files
from pipelines.storage.intent import dump, load
from sotto.errors import AggregationError

FORMAT = 2
NAME = "last_run.json"


@dataclass(frozen=True)
class LastRun:
    """A note about the last run.

    Parameters
    ----------
    generation : int
        The last one that was committed and projected.
    looked : int
        When the log was last aggregated to its end, or a run of it finished, ms of the wall clock.
    finished : int or None
        When that generation was, ms of the wall clock; None if by no run that left a note.
    seconds : float or None
        How long its run took, from its intent to the projection of its results.
    """

    generation: int
    looked: int
    finished: int | None = None
    seconds: float | None = None

    def to_json(self) -> bytes:
        """Return the note as it is stored."""
        return dump({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, content: bytes) -> LastRun:
        """Return the stored note.

        Raises
        ------
        AggregationError
            It is not one, or of an unknown format.

        Examples
        --------
        >>> note = LastRun(3, 1_700_000_000_000, 1_700_000_000_000, 2.5)
        >>> LastRun.from_json(note.to_json()) == note
        True
        """
        value = load(content, NAME, FORMAT)
        try:
            return cls(value["generation"], value["looked"], value["finished"], value["seconds"])
        except KeyError as error:
            raise AggregationError(f"{NAME} is damaged") from error

    @classmethod
    def of(cls, state_dir: Path) -> LastRun | None:
        """Return the note in a state directory; None if there is none.

        Raises
        ------
        AggregationError
            It cannot be read as one.
        """
        try:
            return cls.from_json((state_dir / NAME).read_bytes())
        except FileNotFoundError:
            return None

    def leave(self, state_dir: Path) -> None:
        """Leave the note in a state directory, or none where that is not possible.

        What is committed is so without it: a full disk does not undo a run.
        """
        with suppress(OSError):
            try:
                files.write(state_dir / NAME, [self.to_json()])
            except OSError:
                (state_dir / f"{NAME}.tmp").unlink()
