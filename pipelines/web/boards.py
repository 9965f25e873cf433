"""Boards: charts of several metrics on one page, named in a YAML file; and who may embed charts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from pipelines.storage.yaml_files import YamlModel, read_yaml
from sotto.plan.durations import parse_time


def _time(given: object) -> str:
    """Return a time as it is written, "" if there is none; ParameterError if it is no time."""
    text = "" if given is None else str(given).strip()
    if text:
        parse_time(text)
    return text


_Time = Annotated[str, BeforeValidator(_time)]


class BoardChart(YamlModel):
    """A metric over time, as the address of its page names plan, range, segment and figures."""

    metric: str
    plan: str | None = None
    since: _Time = ""
    until: _Time = ""
    segment: str = ""
    items: tuple[str, ...] = ()


class Board(YamlModel):
    """A board: its name in addresses, its title, its charts from the top."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]
    title: str
    charts: tuple[BoardChart, ...] = Field(min_length=1, max_length=40)


class BoardsFile(YamlModel):
    """The boards of a file, and the origins whose pages may embed charts."""

    boards: tuple[Board, ...] = ()
    embed: tuple[Annotated[str, Field(pattern=r"^https?://[a-z0-9.-]+(:[0-9]+)?$")], ...] = ()


def load_boards(path: Path | None, warn: Callable[[str], None]) -> BoardsFile:
    """Return the content of a file; ParameterError if it is not a file of boards.

    Without a file there are no boards; ``warn`` is called if ``path`` does not exist.
    """
    if path is not None and not path.exists():
        warn(f"--boards: there is no {path}, so no boards: write it, and start again")
        path = None
    return BoardsFile() if path is None else read_yaml(path, BoardsFile, {})
