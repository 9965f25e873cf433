"""A job's folder: what must stay the same from one submission to the next.

It holds ``job.json`` and, unless they are kept elsewhere, checkpoints and savepoints. Whoever goes
on from a savepoint has to give all plans and the slots that made it; the folder knows them.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pipelines.flink.rest import FlinkError
from sotto.compiled import CompiledPlan
from sotto.registry import check_unchanged, names_of

#: Windows are spread over so many keys.
SLOTS = 32


@dataclass(frozen=True)
class Known:
    """What a folder knows of its job.

    Parameters
    ----------
    job : str
        Random name of the deployment, which its documents carry.
    slots : int
    plans : mapping
        Of fingerprint to what people call the plan: all that have ever been given.
    topics : tuple of str
        Those of reports, of the last submission.
    places : tuple of str
        Folders, as URIs, where checkpoints and savepoints have been put.
    flink : str
        Where the job was submitted last; empty before the first time.
    id : str
        What Flink called it then.
    ids : mapping
        Of topic to the id that the broker gave it: all that have ever been read.
    """

    job: str
    slots: int = SLOTS
    plans: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    flink: str = ""
    id: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """Its name for Flink's users and for Kafka."""
        return f"sotto-{self.job}"


class JobFolder:
    """A folder with a job's memory.

    Parameters
    ----------
    path : path
        Made if it does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).resolve()
        self._file = self.path / "job.json"

    @property
    def known(self) -> Known:
        """What is known of the job; of a new one only a name.

        Raises
        ------
        FlinkError
            The folder is damaged.
        """
        try:
            said = json.loads(self._file.read_text("utf-8"))
            for name in ("topics", "places"):
                said[name] = tuple(said[name])
            return Known(**said)
        except FileNotFoundError:
            return Known(secrets.token_hex(8))
        except (ValueError, KeyError, TypeError) as error:
            raise FlinkError(f"{self._file} is damaged: restore it from a copy") from error

    def remember(self, known: Known) -> None:
        """Write it down, durably."""
        self.path.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(asdict(known), file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def place(self, name: str) -> str:
        """Return the URI of a folder in here."""
        return (self.path / name).as_uri()

    def latest(self) -> str | None:
        """Return the URI of the newest complete checkpoint or savepoint; None for none.

        Only folders of this machine are looked through.
        """
        found: list[Path] = []
        for place in self.known.places:
            parts = urlsplit(place)
            if parts.scheme in ("", "file"):
                found += Path(unquote(parts.path)).glob("**/_metadata")
        if not found:
            return None
        return max(found, key=lambda path: path.stat().st_mtime_ns).parent.as_uri()


def with_plans(known: Known, plans: Iterable[CompiledPlan]) -> Known:
    """Return what is known once a job has been given these plans.

    Raises
    ------
    FlinkError
        One that it had is not among them.
    PlanError
        One has another fingerprint than one of its name and version had before.
    """
    plans = tuple(plans)
    check_unchanged(known.plans, plans)
    given = names_of(plans)
    if missing := [name for fingerprint, name in known.plans.items() if fingerprint not in given]:
        raise FlinkError(
            f"plans are missing that the job has had: {', '.join(missing)}: its state has reports "
            "of them; give every --plan of before, and new ones beside them"
        )
    return replace(known, plans={**known.plans, **given})
