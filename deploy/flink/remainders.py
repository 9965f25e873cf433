"""Beam's Flink runner, mended: what is left of an element has one state, not a new one each time.

When a splittable DoFn defers the rest of an element, the runner keeps it in a state whose name has
a new number each time. Flink never forgets the name of a state: each costs some 400 bytes of every
later checkpoint and 40 KB of the task manager's heap, so that a reader that looks for records every
few seconds fills both (https://github.com/apache/beam/issues/27648; corrected in Beam's source in
July 2026, after the releases that Maven has for Flink 1.19). These states are kept by key, and the
key is the element. An element of our pipelines has one remainder at a time, so that one name does
for all of them: the two calls that append numbers to the name are taken out.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from deploy.errors import DeployError

_ARCHIVE = "beam-runners-java-fn-execution-2.62.0.jar"
_CLASS = (
    "org/apache/beam/runners/fnexecution/control/"
    "BundleCheckpointHandlers$StateAndTimerBundleCheckpointHandler.class"
)
#: Load the number, append it to the name: of the bundle, a text, and of the element in it.
_APPENDED = (bytes.fromhex("2ab6000e"), bytes.fromhex("1bb60010"))
_NOTHING = bytes(4)


def mend(folder: Path) -> None:
    """Put the mended archive in the place of Beam's, the same bytes each time."""
    archive = folder / _ARCHIVE
    if not archive.exists():
        raise DeployError(f"there is no {_ARCHIVE}: does another Beam need this still?")
    mended = archive.with_suffix(".mended")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(mended, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == _CLASS:
                content = _mended(content)
            made = zipfile.ZipInfo(entry.filename)
            made.external_attr = entry.external_attr
            # Not compressed: libraries compress the same bytes differently.
            new.writestr(made, content, zipfile.ZIP_STORED)
    mended.replace(archive)


def _mended(content: bytes) -> bytes:
    for calls in _APPENDED:
        if content.count(calls) != 1:
            raise DeployError(f"{_ARCHIVE} is not the one that is known: does it need this still?")
        content = content.replace(calls, _NOTHING)
    return content
