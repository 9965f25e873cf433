"""What the fault run of the drains plays in: a stage, and a state directory on its own disk."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from benchmarks.soak import drains
from benchmarks.soak.disk import disk_at
from benchmarks.soak.drains import Drain, Orders
from benchmarks.soak.schedule import FaultError
from benchmarks.soak.stage import Stage
from pipelines.storage.directory import StateDirectory

#: Reports that a drain takes at most: so few that a drain commits several times.
MAX_REPORTS = 2_000


class World(Stage):
    """A stage, drained into a state directory.

    Parameters
    ----------
    folder, seed, rate
        As of :class:`~benchmarks.soak.stage.Stage`.
    """

    def __init__(self, folder: Path, seed: int, rate: float) -> None:
        super().__init__(folder, seed, rate)
        self.disk = disk_at(folder / "disk")
        self.state = StateDirectory(folder / "disk" / "state")
        self._context = drains.server()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if self.disk is not None:
            self.disk.close()

    def drain(
        self,
        step: str = "",
        occurrence: int = 1,
        file_bytes: int = 0,
        max_reports: int = MAX_REPORTS,
    ) -> Drain:
        """Start a drain; see :class:`~benchmarks.soak.drains.Orders`."""
        return Drain(
            self._context,
            Orders(
                str(self.broker.client_file),
                str(self.topic),
                str(self.state.path),
                str(self.folder / "drain.log"),
                max_reports,
                step,
                occurrence,
                file_bytes,
            ),
        )

    def drain_to_the_end(self) -> None:
        """Drain what is there now, with nothing to stop it.

        Raises
        ------
        FaultError
            It did not come to its end.
        """
        status = self.drain(max_reports=1_000_000).status()
        if status:
            raise FaultError(f"an undisturbed drain ended with {status}: see drain.log")

    @property
    def generation(self) -> int:
        """The generation that is committed, 0 before the first."""
        if not (self.state.path / "MANIFEST.json").exists():
            return 0
        return self.state.manifest().generation
