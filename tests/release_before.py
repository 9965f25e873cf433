"""Files that release 0.4.0 wrote (``tests/data/v0_4_0``), unpacked for a test."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

from sotto.plan.compiled import CompiledPlan

FOLDER = Path(__file__).parent / "data" / "v0_4_0"
DAY, HOUR = 86_400_000, 3_600_000
#: When 0.4.0 aggregated for the last time, ms: in the last of four budget periods.
UPGRADED = 2803 * 7 * DAY + 4 * DAY
#: The topic that the sink's database was written from, and its id.
TOPIC, TOPIC_ID = "reports-estimates", "first"


def text(name: str) -> Path:
    return FOLDER / "plans" / f"{name}.yaml"


def compiled(name: str) -> CompiledPlan:
    """Return a plan as 0.4.0 compiled it."""
    return CompiledPlan.from_file(FOLDER / "plans" / f"{name}.json")


def names() -> list[str]:
    return sorted(file.stem for file in (FOLDER / "plans").glob("*.yaml"))


def fingerprints() -> dict[str, str]:
    found: dict[str, str] = json.loads((FOLDER / "fingerprints.json").read_text())
    return found


def unpacked(name: str, folder: Path) -> Path:
    """Unpack ``state``, ``log`` or ``device-…`` to a folder of its name, and return that."""
    target = folder / name
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        # Pythons before 3.11.4 have no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(target)
    return target


def sink_database(folder: Path) -> Path:
    file = folder / "sink.db"
    file.write_bytes(gzip.decompress((FOLDER / "sink.db.gz").read_bytes()))
    return file


def documents() -> list[tuple[bytes, bytes]]:
    """Return keys and values of documents."""
    lines = gzip.decompress((FOLDER / "documents.jsonl.gz").read_bytes()).decode().splitlines()
    found: list[list[Any]] = [json.loads(line) for line in lines]
    return [(key.encode(), value.encode()) for key, value in found]


def postgres_statements() -> list[str]:
    whole = gzip.decompress((FOLDER / "postgresql.sql.gz").read_bytes()).decode()
    return [each for each in whole.split(";\n") if each.strip()]
