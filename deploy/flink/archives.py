"""Flink's archives: out of a Python package, where they are all of one version and pinned.

Its connector to Kafka has versions of its own and comes from Maven.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from deploy import jars
from deploy.errors import UnavailableError

SOURCE = Path(__file__).parent
CONNECTOR = SOURCE / "connector"
#: Folders of the package: what every process needs, and two parts for clients.
_FOLDERS = ("pyflink/lib", "pyflink/opt")


def archives() -> Path:
    """Return the folder with Flink's archives, fetched if they are not there yet.

    Raises
    ------
    UnavailableError
        They must be fetched and cannot be.
    DeployError
        A file is not the one that is pinned.
    """
    return jars.jars("flink", SOURCE, fetch)


def connector() -> Path:
    """Return the folder with Flink's connector to Kafka, fetched if it is not there yet.

    Raises
    ------
    MissingToolError, UnavailableError
        It must be fetched and cannot be.
    DeployError
        A file is not the one that is pinned.
    """
    return jars.jars("flink-kafka", CONNECTOR)


def fetch(folder: Path) -> None:
    """Let pip fetch the package, and take the archives out of it into ``folder``.

    Raises
    ------
    UnavailableError
        pip could not.
    """
    with tempfile.TemporaryDirectory(dir=jars.cache_folder(), prefix="fetching-") as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-cache-dir", "--only-binary=:all:"]
        command += ["--require-hashes", f"--requirement={SOURCE / 'requirements.txt'}"]
        try:
            done = subprocess.run(
                [*command, f"--dest={temporary}"],
                capture_output=True,
                text=True,
                timeout=jars.FETCH_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(
                f"pip took more than {jars.FETCH_SECONDS} s; try again"
            ) from error
        if done.returncode:
            said = next((line for line in done.stderr.splitlines() if "ERROR" in line), "")
            raise UnavailableError(
                "pip could not fetch what flink needs; with a network, try again: "
                f"{said.removeprefix('ERROR: ') or done.stderr.strip()[-500:]}"
            )
        (package,) = Path(temporary).glob("*.whl")
        _take_out(package, folder)


def _take_out(package: Path, folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(package) as archive:
        for name in archive.namelist():
            path = PurePosixPath(name)
            if str(path.parent) in _FOLDERS and path.suffix == ".jar":
                (folder / path.name).write_bytes(archive.read(name))
