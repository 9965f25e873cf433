"""The two compose files, with the defaults of their variables, and their commands run here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
Service = Mapping[str, Any]


class ComposeFile:
    """A compose file of the project, by its name."""

    def __init__(self, name: str) -> None:
        self.text = (ROOT / name).read_text(encoding="utf-8")
        self.document: dict[str, Any] = yaml.safe_load(
            re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", self.text)
        )
        self.services: dict[str, dict[str, Any]] = self.document["services"]

    def of_profile(self, profile: str) -> dict[str, dict[str, Any]]:
        """Return the services that run in a profile; all where there are no profiles."""
        return {
            name: service
            for name, service in self.services.items()
            if profile in service.get("profiles", [profile])
        }

    def command(self, service: str, places: Mapping[str, object]) -> list[str]:
        """Return the words of a command with what this machine has in the place of containers'."""
        command = " ".join(self.services[service]["command"].split())
        for container, here in places.items():
            command = re.sub(container, str(here), command)
        return shlex.split(command)


def mounts(service: Service) -> Iterator[tuple[str, str]]:
    """Yield source and target of what is mounted."""
    for each in service.get("volumes", []):
        source, target, *_ = each.split(":")
        yield source, target


WHOLE, SMALL = ComposeFile("docker-compose.yml"), ComposeFile("docker-compose.small.yml")
