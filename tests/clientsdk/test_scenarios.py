"""Lives of a device, step by step: ``scenarios/*.txt``, of which its README says how to read them.

Each is lived on a file and, if no step needs one, once more in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from device_machine import DeviceMachine

FOLDER = Path(__file__).with_name("scenarios")
#: Steps of files, and of several clients on one.
ON_FILES = {"copy", "restore", "lose", "damage", "cut", "alter", "rows", "aside", "die", "close"}
ON_FILES |= {"failing", "killed", "reading", "writing", "gone", "unchanged"}
ON_FILES |= {"write", "note", "reconnect", "overwrite"}


class Scenario(NamedTuple):
    """Steps of one life, each with its place."""

    name: str
    steps: list[tuple[str, str]]

    @property
    def needs_file(self) -> bool:
        lines = [step for _, step in self.steps]
        verbs = {line.partition("->")[0].rpartition(":")[2].split()[0] for line in lines}
        started = [line for line in lines if "start" in line.partition("->")[0].split()]
        return bool(verbs & ON_FILES) or len(started) > 1


def scenarios() -> list[Scenario]:
    """All of them; steps at the head of a file begin each of its lives."""
    found: list[Scenario] = []
    for path in sorted(FOLDER.glob("*.txt")):
        head: list[tuple[str, str]] = []
        steps = head
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            if line.startswith("    ") and not line.strip().startswith("#"):
                steps.append((f"{path.name}:{number}", line.strip()))
            elif line and line[0] not in "# ":
                found.append(Scenario(line, steps := [*head]))
    return [variant for scenario in found for variant in variants(scenario)]


def variants(scenario: Scenario) -> Iterator[Scenario]:
    """One life for each text that a step ``for NAME in TEXT | TEXT`` lists."""
    for number, (_, step) in enumerate(scenario.steps):
        if step.startswith("for "):
            name, texts = step.removeprefix("for ").split(" in ", 1)
            for text in map(str.strip, texts.split(" | ")):
                others = scenario.steps[:number] + scenario.steps[number + 1 :]
                steps = [(place, each.replace(name, text)) for place, each in others]
                yield from variants(Scenario(f"{scenario.name}: {text}", steps))
            return
    yield scenario


def live(scenario: Scenario, path: Path | None) -> None:
    machine = DeviceMachine(path)
    try:
        for place, step in scenario.steps:
            try:
                machine.run(step)
            except Exception as error:
                raise AssertionError(f"{place}: {step}\n{type(error).__name__}: {error}") from error
    finally:
        machine.end()


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_life_on_a_file(scenario, path):
    live(scenario, path)


@pytest.mark.parametrize(
    "scenario",
    [each for each in scenarios() if not each.needs_file],
    ids=lambda scenario: scenario.name,
)
def test_life_in_memory(scenario):
    live(scenario, None)
