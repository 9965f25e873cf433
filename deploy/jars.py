"""Java archives from Maven, in a cache folder, checked against a committed list.

The list names every file with its SHA-256, as ``sha256sum`` writes it. Files that are fetched get
their names only once every file is as listed; files in the cache are checked again before each use.
With a full cache no network is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.errors import DeployError, MissingToolError, UnavailableError

ROOT = Path(__file__).parent.parent
#: How long Maven may take to fetch everything, in seconds.
FETCH_SECONDS = 600
#: How often somebody who waits for that is shown that it goes on, in seconds.
_SHOWN_EVERY = 10
_JAVA = 17


def cache_folder() -> Path:
    """Return where archives are kept: ``SOTTO_CACHE``, or ``.cache`` in this checkout."""
    return Path(os.environ.get("SOTTO_CACHE") or ROOT / ".cache")


def java() -> str:
    """Return the path of a Java that is new enough; MissingToolError if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    wanted = f"install Java {_JAVA} or newer (a headless runtime is enough) or set JAVA_HOME"
    if found is None:
        raise MissingToolError(f"Java is not installed: {wanted}")
    try:
        done = subprocess.run(
            [found, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingToolError(f"{found} does not run ({error}): {wanted}") from error
    version = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if version is None or int(version[1]) < _JAVA:
        fault = "does not say its version" if version is None else f"is Java {version[1]}"
        raise MissingToolError(f"{found} {fault}: {wanted}")
    return found


def java_options(folders: Sequence[Path], heap: int, logging: Path, tls: bool = False) -> list[str]:
    """Return what every Java here is started with: a heap in megabytes, a class path, a log.

    ``tls``: whether it encrypts.
    """
    return [
        f"-Xms{min(64, heap)}m",
        f"-Xmx{heap}m",
        "-XX:+UseSerialGC",
        # Java moves bytes here, and Python counts: optimizing twice takes more than it brings. The
        # processor's instructions for AES are used by the second compiler alone.
        *([] if tls else ["-XX:TieredStopAtLevel=1"]),
        "-XX:+ExitOnOutOfMemoryError",
        f"-Dlog4j2.configurationFile={logging / 'log4j2.properties'}",
        "-cp",
        os.pathsep.join(f"{folder}/*" for folder in folders),
    ]


def jars(name: str, source: Path, bring: Callable[[Path], None] | None = None) -> Path:
    """Return a folder with the archives that ``source`` pins, fetched if they are not there yet.

    ``source`` has ``jars.sha256``, and ``pom.xml`` unless ``bring`` fetches them into a folder that
    it makes. Raises MissingToolError or UnavailableError if they must be fetched and cannot be, and
    DeployError if a file is not the one that the list names.
    """
    pins = (source / "jars.sha256").read_bytes()
    wanted = _parse(pins)
    folder = cache_folder() / f"{name}-{hashlib.sha256(pins).hexdigest()[:12]}"
    # A cache that has them may be on a file system that is only read.
    if not folder.is_dir():
        with locked(cache_folder() / "lock"):
            if folder.is_dir():
                return folder
            with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetching-") as temporary:
                fetched = Path(temporary) / "jars"
                if bring is None:
                    fetch(source / "pom.xml", fetched)
                else:
                    bring(fetched)
                _check(fetched, wanted, "what was brought is not what is pinned")
                folder.parent.mkdir(parents=True, exist_ok=True)
                fetched.rename(folder)
                return folder
    _check(folder, wanted, f"the cache is damaged; remove {folder} and start again")
    return folder


def fetch(pom: Path, folder: Path) -> None:
    """Let Maven copy all that a POM depends on at run time into ``folder``."""
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingToolError(
            "Maven is not installed: install it (mvn), or fill the cache folder on a machine "
            "that has it and set SOTTO_CACHE"
        )
    command = [maven, "--batch-mode", "--quiet", "-Dstyle.color=never", f"--file={pom}"]
    command += [f"-Dmaven.repo.local={cache_folder() / 'maven'}", f"-DoutputDirectory={folder}"]
    run_fetcher([*command, "dependency:copy-dependencies"], "Maven", pom.parent.name)


def run_fetcher(command: Sequence[str], tool: str, wanted: str) -> None:
    """Run a program that fetches something; UnavailableError with its first error if it fails.

    A line on stderr every ten seconds shows that it goes on.
    """
    print(f"{tool} fetches what {wanted} needs, once", file=sys.stderr)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for waited in range(0, FETCH_SECONDS, _SHOWN_EVERY):
            if waited:
                print(f"{tool} goes on: {waited} of {FETCH_SECONDS} s", file=sys.stderr)
            try:
                output, errors = process.communicate(timeout=_SHOWN_EVERY)
                break
            except subprocess.TimeoutExpired:
                continue
            except BaseException:
                process.kill()
                raise
        else:
            process.kill()
            raise UnavailableError(f"{tool} took more than {FETCH_SECONDS} s; try again")
    if process.returncode:
        lines = [line for line in (output + errors).splitlines() if "ERROR" in line]
        reason = lines[0].removeprefix("[ERROR] ").removeprefix("ERROR: ") if lines else ""
        raise UnavailableError(
            f"{tool} could not fetch what {wanted} needs; with a network, try again: "
            f"{reason or errors.strip()[-500:]}"
        )


def pins(folder: Path) -> str:
    """Return the list of a folder's archives, as ``jars.sha256`` holds it."""
    lines = [f"{_digest(path)}  {path.name}\n" for path in sorted(folder.glob("*.jar"))]
    return "".join(lines)


def _parse(text: bytes) -> dict[str, str]:
    pairs = (line.split("  ", 1) for line in text.decode("ascii").splitlines())
    return {name: digest for digest, name in pairs}


def _check(folder: Path, wanted: dict[str, str], failing: str) -> None:
    found = {path.name: _digest(path) for path in folder.iterdir()}
    if found != wanted:
        wrong = sorted(
            name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)
        )
        raise DeployError(f"{failing}: {', '.join(wrong[:5])} ({len(wrong)} files)")


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time do something; the others wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
