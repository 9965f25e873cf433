"""The archives of Flink, from a Python package, and of Beam's job server, from Maven.

The job server sends to Flink every file of its class path at each submission, some 250 MB, except
files whose path contains ``gradle/wrapper``: Beam holds that such files cannot be sent. Flink has
the same files on its own class path, so both caches have that name.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from deploy import jars
from deploy.flink.remainders import mend

SOURCE = Path(__file__).parent
JOB_SERVER = SOURCE / "jobserver"
_NOT_SENT = "gradle/wrapper"
#: Flink itself and its logging; the rest is for SQL.
_TAKEN = ("deps/lib/flink-dist-*.jar", "deps/lib/log4j-*.jar")


def archives() -> list[Path]:
    """Return the folders of the class path, first first, fetched if they are not there yet."""
    return [
        jars.jars(f"{_NOT_SENT}/flink", SOURCE, fetch),
        jars.jars(f"{_NOT_SENT}/beam-flink", JOB_SERVER, fetch_job_server),
    ]


def fetch_job_server(folder: Path) -> None:
    """Let Maven bring Beam's job server into ``folder``, and mend it."""
    jars.fetch(JOB_SERVER / "pom.xml", folder)
    mend(folder)


def fetch(folder: Path) -> None:
    """Let pip fetch the package, and take the archives out of it into ``folder``."""
    with tempfile.TemporaryDirectory(dir=jars.cache_folder(), prefix="fetching-") as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-cache-dir", "--no-binary=:all:"]
        command += ["--require-hashes", f"--requirement={SOURCE / 'requirements.txt'}"]
        jars.run_fetcher([*command, f"--dest={temporary}"], "pip", "Flink")
        (package,) = Path(temporary).glob("*.tar.gz")
        _take_out(package, folder)


def _take_out(package: Path, folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(package) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            content = archive.extractfile(member)
            if content is not None and any(path.match(pattern) for pattern in _TAKEN):
                with content, open(folder / path.name, "wb") as file:
                    shutil.copyfileobj(content, file)
