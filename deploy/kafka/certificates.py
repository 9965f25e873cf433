"""An authority and a broker's certificate for loopback, made where they are used.

The authority's key is thrown away as soon as the certificate is signed. Where either certificate
ends soon, both are made anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from deploy.errors import DeployError, MissingToolError

DAYS = 365
#: Certificates that end within so many days are made anew.
RENEWED = 30


class Keys(NamedTuple):
    """Files in PEM.

    Attributes
    ----------
    authority : Path
        The certificate that clients trust.
    server : Path
        The broker's key and its chain of certificates.
    """

    authority: Path
    server: Path


def make(folder: Path) -> Keys:
    """Return the keys in ``folder``, made if they are not there or end soon.

    To be called before the broker starts: clients trust the new authority once they read its file.

    Raises
    ------
    DeployError
        OpenSSL is not installed, or refuses.
    """
    keys = Keys(folder / "authority.pem", folder / "server.pem")
    if all(path.exists() and _lasts(path) for path in keys):
        return keys
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        made = _make(Path(temporary))
        # Without an authority a broker's certificate is made anew: never are two of different ones.
        keys.authority.unlink(missing_ok=True)
        made.server.rename(keys.server)
        made.authority.rename(keys.authority)
    return keys


def _make(folder: Path) -> Keys:
    authority, authority_key = folder / "authority.pem", folder / "authority.key"
    certificate, key = folder / "certificate.pem", folder / "server.key"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made: list[str | Path] = ["-days", str(DAYS), "-out"]
    signing: list[str | Path] = ["-subj", "/CN=Sotto local authority", "-keyout", authority_key]
    _openssl("req", "-x509", *curve, *signing, *made, authority)
    request = folder / "request.pem"
    _openssl("req", *curve, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    names = folder / "names.cnf"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n", encoding="ascii")
    signed: list[str | Path] = [
        "-CA",
        authority,
        "-CAkey",
        authority_key,
        "-CAcreateserial",
        "-extfile",
        names,
    ]
    _openssl("x509", "-req", "-in", request, *signed, *made, certificate)
    server = folder / "server.pem"
    descriptor = os.open(server, os.O_WRONLY | os.O_CREAT, 0o600)
    with open(descriptor, "wb") as file:
        for part in (key, certificate, authority):
            file.write(part.read_bytes())
    return Keys(authority, server)


def _lasts(certificate: Path) -> bool:
    """Tell whether a file has a certificate, and it does not end soon."""
    seconds = str(RENEWED * 86_400)
    return not _run("x509", "-in", certificate, "-noout", "-checkend", seconds).returncode


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("openssl")
    if program is None:
        raise MissingToolError("OpenSSL is not installed: install it, or use the profile plain")
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def _openssl(*arguments: str | Path) -> None:
    done = _run(*arguments)
    if done.returncode:
        raise DeployError(f"openssl {arguments[0]} failed: {done.stderr.strip()[-300:]}")
