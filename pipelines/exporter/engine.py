"""Flink's figures of a streaming job: checkpoints, restarts, load, time and memory.

The figures come from the job manager's REST interface. Flink's own reporter for Prometheus would
open a port on all addresses, and expose a thousand series.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pipelines.flink import JOB_PREFIX, WORKER_BYTES
from pipelines.flink.rest import FlinkError, JobManager, JobStatus
from pipelines.results.database import UnreadableError

#: The stage whose watermark is taken for the pipeline's: elements before it have no times.
_COUNTING = "Count reports"
_READING = "Decode reports"
#: A watermark before this time, ms, means that there is none yet.
_NEVER = -(2**62)


@dataclass(frozen=True)
class Engine:
    """A reading of the engine; a figure is None if the engine does not have it (yet)."""

    running: bool  #: whether every task runs
    restarts: float | None = None
    checkpointed: int | None = None  #: when the last complete checkpoint began, ms
    interval: int | None = None  #: between two checkpoints, ms
    size: int | None = None  #: of the last complete checkpoint, bytes
    duration: int | None = None  #: of the last complete checkpoint, ms
    completed: int | None = None
    failed: int | None = None
    watermark: int | None = None  #: ms
    backpressure: float | None = None  #: of the stage that waits most for the next, in [0, 1]
    busy: float | None = None  #: of the busiest stage, in [0, 1]
    heap: float | None = None  #: of the fullest task manager, in [0, 1]
    worker_bytes: float | None = None  #: resident memory of all Python workers


class WatchedEngine:
    """Flink at the URL of its job manager."""

    def __init__(self, url: str) -> None:
        self._manager = JobManager(url)

    def read(self, job: str | None) -> Engine:
        """Return a reading of a job, given the name that its documents carry.

        If the name is not known yet, the newest job of a pipeline of Sotto's is read. Raises
        UnreadableError if nothing answers.
        """
        try:
            return self._read(job)
        except FlinkError as error:
            raise UnreadableError(str(error)) from error

    def _read(self, job: str | None) -> Engine:
        begins = JOB_PREFIX + (job or "")
        found = [
            each
            for each in self._manager.jobs()
            if (each.name == begins if job else each.name.startswith(begins))
        ]
        if not found:
            return Engine(running=False)
        newest = max(found, key=lambda each: each.began)
        return Engine(newest.well, **self._job(newest), **self._stages(newest), **self._heap())

    def _job(self, job: JobStatus) -> dict[str, Any]:
        ask, path = self._manager.ask, f"/jobs/{job.id}"
        checkpoints = ask(f"{path}/checkpoints")
        latest = checkpoints["latest"]
        last, restored = latest["completed"] or {}, latest["restored"] or {}
        restarts = _values(ask(f"{path}/metrics?get=numRestarts"), "value")
        return {
            "restarts": restarts.get("numRestarts"),
            "checkpointed": last.get("trigger_timestamp")
            or restored.get("restore_timestamp")
            or job.began,
            "interval": ask(f"{path}/checkpoints/config")["interval"],
            "size": last.get("state_size"),
            "duration": last.get("end_to_end_duration"),
            "completed": checkpoints["counts"]["completed"],
            "failed": checkpoints["counts"]["failed"],
        }

    def _stages(self, job: JobStatus) -> dict[str, Any]:
        waiting, busy = [], []
        found: dict[str, Any] = {}
        for stage in self._manager.ask(f"/jobs/{job.id}")["vertices"]:
            path = f"/jobs/{job.id}/vertices/{stage['id']}/subtasks/metrics"
            most = self._values(
                path, ["backPressuredTimeMsPerSecond", "busyTimeMsPerSecond"], "max"
            )
            waiting.append(most.get("backPressuredTimeMsPerSecond"))
            busy.append(most.get("busyTimeMsPerSecond"))
            if _COUNTING in stage["name"]:
                values = self._values(path, ["currentInputWatermark"], "min")
                at = values.get("currentInputWatermark", math.inf)
                found["watermark"] = None if abs(at) >= -_NEVER else int(at)
            if _READING in stage["name"]:
                known = [each["id"] for each in self._manager.ask(path)]
                named = [each for each in known if each.endswith(WORKER_BYTES)]
                sums = self._values(path, named, "sum") if named else {}
                found["worker_bytes"] = sum(sums.values()) or None
        return {**found, "backpressure": _most(waiting, 1e3), "busy": _most(busy, 1e3)}

    def _heap(self) -> dict[str, Any]:
        memory = "Status.JVM.Memory.Heap."
        each = [
            self._values(f"/taskmanagers/{one['id']}/metrics", [f"{memory}Used", f"{memory}Max"])
            for one in self._manager.ask("/taskmanagers")["taskmanagers"]
        ]
        full = [one[f"{memory}Used"] / one[f"{memory}Max"] for one in each if len(one) == 2]
        return {"heap": _most(full)}

    def _values(self, path: str, names: Sequence[str], key: str = "value") -> dict[str, float]:
        """Return metrics by name; an empty dict if Flink lacks one of them, or has just begun."""
        return _values(self._manager.ask(f"{path}?get={','.join(map(quote, names))}"), key)


def _values(found: Sequence[Mapping[str, Any]], key: str) -> dict[str, float]:
    return {each["id"]: float(each[key]) for each in found if key in each}


def _most(values: Sequence[float | None], of: float = 1.0) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return max(known) / of if known else None
