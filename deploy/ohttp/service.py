"""A gateway on this machine, on loopback: built with ``go build`` from ``gateway/``."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from deploy.errors import DeployError, MissingToolError, UnavailableError
from deploy.jars import ROOT, locked
from deploy.ports import HOST, free_ports, require_free
from deploy.process import Process, wait_until_ready

SOURCE = Path(__file__).parent / "gateway"
#: The programs. Go keeps its cache where it always does, so that other clones build in a second.
BUILT = ROOT / "build" / "ohttp"
#: How long fetching and building, and a start, may take, in seconds.
BUILD_SECONDS, START_SECONDS = 600, 60
#: The folder into which Go's own installer puts the command ``go``.
_USUAL = "/usr/local/go/bin"


def program(source: Path = SOURCE) -> Path:
    """Return the program, built if it is not there yet; ``source`` has its ``go.mod``.

    Raises
    ------
    MissingToolError
        Go is not installed.
    UnavailableError
        It cannot be built: Go modules cannot be fetched, for example.
    """
    sources = b"".join(path.read_bytes() for path in sorted(source.iterdir()))
    built = BUILT / f"{source.name}-{hashlib.sha256(sources).hexdigest()[:12]}"
    with locked(BUILT / "lock"):
        if not built.exists():
            _build(source, built)
    return built


def _build(source: Path, to: Path) -> None:
    go = shutil.which("go") or shutil.which("go", path=_USUAL)
    if go is None:
        raise MissingToolError("Go is not installed: install Go 1.24 or newer (https://go.dev/dl)")
    unfinished = to.with_suffix(".new")
    # Modules that are fetched are checked against go.sum; no other version of Go is fetched.
    settings = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            [go, "build", "-mod=readonly", "-trimpath", "-o", str(unfinished), "."],
            cwd=source,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"go build took more than {BUILD_SECONDS} s; try again") from error
    if done.returncode:
        raise UnavailableError(f"go build: {done.stderr.strip()[-500:]}")
    unfinished.rename(to)


class LocalGateway:
    """A gateway whose files are all in one folder, made if it does not exist.

    ``key_file`` is secret: an identifier and a seed a line. It has one key unless it was written
    before, and is read at the start.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).resolve()
        self.key_file = self.folder / "gateway.keys"
        self._process = Process(self.folder, "gateway", str(self.key_file))
        self.port = 0

    @property
    def running(self) -> bool:
        return self._process.pid is not None

    @property
    def log_file(self) -> Path:
        return self._process.log_file

    def start(self, origin: str, collector: str, port: int = 0) -> None:
        """Start it and return once it answers; after a DeployError nothing is left running.

        Parameters
        ----------
        origin : str
            Host name by which apps name the collector.
        collector : str
            URL at which the gateway reaches it.
        port : int
            0 takes a free one.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.running:
            raise DeployError(f"a gateway is running already in {self.folder}")
        self.port = port or free_ports(1)[0]
        require_free(self.port)
        if not self.key_file.exists():
            self.write_keys({1: secrets.token_bytes(32)})
        command = [str(program()), "-listen", f"{HOST}:{self.port}", "-keys", str(self.key_file)]
        self._process.start([*command, "-origin", origin, "-collector", collector], {})
        try:
            wait_until_ready([self._process], lambda: bool(self._served()), START_SECONDS)
        except BaseException:
            self._process.kill()
            raise

    def stop(self) -> bool:
        """Let it end; False if none was running."""
        return self._process.stop()

    def write_keys(self, seeds: dict[int, bytes]) -> None:
        """Write the file of keys: seeds of 32 random bytes by identifier, the newest first."""
        descriptor = os.open(self.key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.writelines(f"{key_id} {seed.hex()}\n" for key_id, seed in seeds.items())

    def public_keys(self) -> bytes:
        """Return the key configuration that ships with apps (``application/ohttp-keys``)."""
        found = self._served()
        if not found:
            raise DeployError("the gateway does not answer")
        return found

    def _served(self) -> bytes:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.port}/ohttp-keys", timeout=5) as got:
                return bytes(got.read())
        except (urllib.error.URLError, OSError):
            return b""
