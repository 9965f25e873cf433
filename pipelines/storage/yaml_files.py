"""Reads YAML files that a user writes: pydantic checks them, and errors name every problem."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sotto.errors import ParameterError
from sotto.plan.document import yaml_reason

T = TypeVar("T")


class YamlModel(BaseModel):
    """The base of mappings in a file: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_yaml(path: Path, kind: type[T], empty: object, more: str = "") -> T:
    """Return the content of a file, as a type that pydantic validates.

    ``empty``: the document that stands for an empty file. ``more``: text that is read as if it were
    at the file's end. Paths in the file are relative to its folder.

    Raises ParameterError, with all that is wrong and what is expected.
    """
    try:
        found = yaml.safe_load(path.read_text("utf-8") + more)
        document = empty if found is None else found
        return TypeAdapter(kind).validate_python(document, context={"folder": path.parent})
    except IsADirectoryError:
        raise ParameterError(f"{path} must be a file of YAML; got a folder: name a file") from None
    except yaml.YAMLError as error:
        raise ParameterError(f"{path} cannot be read as YAML: {yaml_reason(error)}") from None
    except UnicodeDecodeError:
        raise ParameterError(f"{path} cannot be read as YAML: it is not UTF-8") from None
    except ValidationError as error:
        raise ParameterError("\n".join(f"{path}: {line}" for line in problems_of(error))) from None
    except ValueError as error:
        # YAML makes dates while it reads, and fails at one such as 2026-13-01.
        raise ParameterError(f"{path} cannot be read as YAML: {error}") from None


_SHAPES = {"model_type": "a mapping, such as {key: value}", "tuple_type": "a list, such as [a, b]"}


def problems_of(error: ValidationError, whole: str = "the file") -> list[str]:
    """Return a line for each problem: its place, and what is expected.

    ``whole``: the name of the whole document, for a problem that has no place within it.
    """
    found: list[str] = []
    for each in error.errors(include_url=False):
        place = ".".join(f"{part + 1}" if isinstance(part, int) else part for part in each["loc"])
        if each["type"] == "too_short" and any(f"{place}." in line for line in found):
            # Pydantic counts only sound values, so a list with a problem may seem too short.
            continue
        if each["type"] == "missing":
            found.append(f"{place} is missing")
        elif each["type"] == "extra_forbidden":
            found.append(f"unknown key {place}")
        elif each["type"] in _SHAPES:
            found.append(f"{place or whole} must be {_SHAPES[each['type']]}")
        else:
            message = each["msg"].removeprefix("Value error, ")
            found.append(f"{place}: {message[:1].lower()}{message[1:]}" if place else message)
    return found
