"""What the fault run of the runs plays in: a stage, and a state directory on its own disk."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from benchmarks.soak import runs
from benchmarks.soak.disk import disk_at
from benchmarks.soak.runs import Orders, Run
from benchmarks.soak.schedule import FaultError
from benchmarks.soak.stage import Stage
from pipelines.storage.directory import StateDirectory

#: Reports that a run takes at most: so few that a run commits several times.
MAX_REPORTS = 2_000


class World(Stage):
    """A stage, aggregated into a state directory.

    Parameters
    ----------
    folder, seed, rate
        As of :class:`~benchmarks.soak.stage.Stage`.
    """

    def __init__(self, folder: Path, seed: int, rate: float) -> None:
        super().__init__(folder, seed, rate)
        self.disk = disk_at(folder / "disk")
        self.state = StateDirectory(folder / "disk" / "state")
        self._context = runs.server()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if self.disk is not None:
            self.disk.close()

    def aggregate(
        self,
        step: str = "",
        occurrence: int = 1,
        file_bytes: int = 0,
        max_reports: int = MAX_REPORTS,
    ) -> Run:
        """Start a run; see :class:`~benchmarks.soak.runs.Orders`."""
        return Run(
            self._context,
            Orders(
                str(self.broker.client_file),
                str(self.topic),
                str(self.state.path),
                str(self.folder / "run.log"),
                max_reports,
                step,
                occurrence,
                file_bytes,
            ),
        )

    def aggregate_to_the_end(self) -> None:
        """Aggregate what is there now, with nothing to stop it.

        Raises
        ------
        FaultError
            It did not come to its end.
        """
        status = self.aggregate(max_reports=1_000_000).status()
        if status:
            raise FaultError(f"an undisturbed run ended with {status}: see run.log")

    @property
    def generation(self) -> int:
        """The generation that is committed, 0 before the first."""
        if not (self.state.path / "MANIFEST.json").exists():
            return 0
        return self.state.manifest().generation
