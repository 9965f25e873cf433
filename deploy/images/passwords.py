"""Makes the passwords of a deployment in containers: ``python -m deploy.images.passwords``.

They are drawn once and kept in ``build/compose``, in a file for each container that needs one, and
are in no file that is committed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent / "build" / "compose"


def make(folder: Path = FOLDER) -> None:
    """Make the files that are not there; those that are stay as they are.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "postgres.env"
    if not database.exists():
        _write(database, {"POSTGRES_PASSWORD": secrets.token_urlsafe(24)})
    # Who asks the database has the same password under the name that its library reads.
    password = database.read_text("ascii").partition("=")[2].strip()
    _write(folder / "client.env", {"PGPASSWORD": password})
    if not (folder / "grafana.env").exists():
        _write(folder / "grafana.env", {"GF_SECURITY_ADMIN_PASSWORD": secrets.token_urlsafe(24)})


def _write(path: Path, said: Mapping[str, str]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.writelines(f"{name}={value}\n" for name, value in said.items())


if __name__ == "__main__":
    make()
