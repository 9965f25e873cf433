"""Folders of a Flink session."""

from __future__ import annotations

from pathlib import Path

from deploy.flink.cluster import LocalFlink


def test_checkpoints_are_nobody_elses(tmp_path: Path) -> None:
    """They hold pseudonyms and payloads."""
    LocalFlink(tmp_path / "flink")._configure(None)
    for name in ("checkpoints", "savepoints", "tmp"):
        assert (tmp_path / "flink" / name).stat().st_mode & 0o007 == 0
