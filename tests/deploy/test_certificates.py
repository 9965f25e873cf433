"""The broker's certificates: of the authority that clients trust, and never about to end."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
from programs import needed

from deploy import certificates
from deploy.certificates import DAYS, RENEWED, Keys, make


@pytest.fixture(autouse=True)
def _openssl() -> None:
    needed("openssl")


def content(keys: Keys) -> tuple[bytes, bytes]:
    """Return what the files hold, once the server's certificate is seen to be the authority's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys.server)
    verify = ["openssl", "verify", "-CAfile", str(keys.authority), str(keys.server)]
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 0
    return keys.authority.read_bytes(), keys.server.read_bytes()


def test_certificates_stay_until_they_end_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "DAYS", RENEWED + 1)
    first = content(make(tmp_path))
    assert content(make(tmp_path)) == first
    monkeypatch.setattr(certificates, "RENEWED", RENEWED + 2)
    monkeypatch.setattr(certificates, "DAYS", DAYS)
    second = content(make(tmp_path))
    assert second[0] != first[0]
    assert second[1] != first[1]
    assert content(make(tmp_path)) == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["authority.pem", "server.pem"]
    assert (tmp_path / "server.pem").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("after", ["authority.pem", "server.pem"])
def test_what_was_interrupted_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """Killed before or between the two files: what is there next is a pair again."""
    first = content(make(tmp_path))
    monkeypatch.setattr(certificates, "RENEWED", DAYS + 1)
    rename = Path.rename

    def killed(path: Path, target: Path) -> None:
        if path.name == after:
            raise KeyboardInterrupt
        rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path)
    monkeypatch.setattr(certificates, "RENEWED", RENEWED)
    again = content(make(tmp_path))
    assert again[0] != first[0]


def test_a_damaged_certificate_is_made_anew(tmp_path: Path) -> None:
    keys = make(tmp_path)
    keys.server.write_bytes(b"")
    content(make(tmp_path))
