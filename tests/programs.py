"""Programs that tests use and no lock brings: without one, its tests are skipped and counted.

``needed`` finds a program, or skips the test. The last line of a run names what was not tested so,
and the commands that bring it.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy import browser as browsers
from deploy.errors import MissingToolError, UnavailableError

#: Packages of Debian and Ubuntu, by program.
PACKAGES = {
    "caddy": "caddy",
    "curl": "curl",
    "java": "default-jre-headless",
    "kubectl": "kubernetes-client",
    "maven": "maven",
    "openssl": "openssl",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
SKIPPED = re.compile(r"needs (\S+)$|\b(\w+) is not installed")


def needed(program: str) -> str:
    """Return the path of a program; skip the test where there is none."""
    found = _find(program)
    if found is None:
        pytest.skip(f"needs {program}")
    return found


@contextmanager
def fetched() -> Iterator[None]:
    """Skip the test if parts of a service are neither in the cache nor to be had."""
    try:
        yield
    except (MissingToolError, UnavailableError) as error:
        pytest.skip(str(error))


def not_tested(reasons: Iterable[str]) -> str:
    """Return a line about tests that were skipped for want of programs; "" if there are none."""
    lacking = Counter(
        (found[1] or found[2]).lower() for reason in reasons if (found := SKIPPED.search(reason))
    )
    if not lacking:
        return ""
    packages = sorted({PACKAGES[name] for name in lacking if name in PACKAGES})
    commands = [f"apt-get install {' '.join(packages)}"] if packages else []
    if "chromium" in lacking:
        commands.append("make browser")
    commands += [f"pyenv install {name[6:]}" for name in sorted(lacking) if name[:6] == "python"]
    tests = ", ".join(f"{name} ({number})" for name, number in sorted(lacking.items()))
    return f"not tested for want of programs: {tests}; to test it: {' && '.join(commands)}"


@functools.cache
def _find(program: str) -> str | None:
    if program == "chromium":
        return browsers.chromium()
    return _interpreter(program) if program.startswith("python") else shutil.which(program)


def _interpreter(name: str) -> str | None:
    """Return a Python that runs: shims of pyenv do only where a version is chosen."""
    folders = [*os.get_exec_path(), *map(str, Path.home().glob(".pyenv/versions/*/bin"))]
    for folder in folders:
        path = shutil.which(name, path=folder)
        works = path and subprocess.run([path, "-I", "-c", "import sqlite3"], capture_output=True)
        if works and works.returncode == 0:
            return path
    return None


@pytest.fixture(scope="module")
def browser():
    """A Chromium, without pages of its own."""
    program = needed("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
