"""Texts that are files beside the code: ``templates/`` of a package."""

from __future__ import annotations

from importlib.resources import files


def template(package: str | None, name: str) -> str:
    """Return the text of a template of a package, by the file's name."""
    return (files(package or "") / "templates" / name).read_text(encoding="utf-8")
