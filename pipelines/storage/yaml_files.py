"""Reads YAML files that a user writes: pydantic checks them, and errors name every problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from sotto.errors import ParameterError
from sotto.plan.document import nearest_key, yaml_reason

T = TypeVar("T")


class YamlModel(BaseModel):
    """The base of mappings in a file: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _note_keys(cls, found: Any, info: Any) -> Any:
        """Note in the context which keys a mapping of the file can have."""
        if info.context is not None:
            info.context[id(found)] = tuple(cls.model_fields)
        return found


def read_yaml(path: Path, kind: type[T], empty: object, more: str = "") -> T:
    """Return the content of a file, as a type that pydantic validates.

    ``empty``: the document that stands for an empty file. ``more``: text that is read as if it were
    at the file's end. Paths in the file are relative to its folder.

    Raises ParameterError, with all that is wrong and what is expected.
    """
    context: dict[object, Any] = {"folder": path.parent}
    try:
        found = yaml.safe_load(path.read_text("utf-8") + more)
        context["document"] = empty if found is None else found
        return TypeAdapter(kind).validate_python(context["document"], context=context)
    except IsADirectoryError:
        raise ParameterError(f"{path} must be a file of YAML; got a folder: name a file") from None
    except ValidationError as error:
        lines = problems_of(error, context)
        raise ParameterError("\n".join(f"{path}: {line}" for line in lines)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ParameterError(f"{path} cannot be read as YAML: {yaml_reason(error)}") from None


_SHAPES = {
    "model_type": "a mapping, such as {key: value}",
    "tuple_type": "a list, such as [a, b]",
    "too_short": "a list of one or more, such as [a, b]",
}


def problems_of(error: ValidationError, context: Any = None, whole: str = "the file") -> list[str]:
    """Return a line for each problem: its place, and what is expected.

    ``context``: the document and what was noted of it, if it was read by :func:`read_yaml`.
    ``whole``: the name of the whole document, for a problem that has no place within it.
    """
    found: list[str] = []
    for each in error.errors(include_url=False):
        kind = each["type"]
        place = ".".join(f"{part + 1}" if isinstance(part, int) else part for part in each["loc"])
        if kind == "too_short" and any(f"{place}." in line for line in found):
            # Pydantic counts only sound values, so a list with a problem may seem too short.
            continue
        if kind == "missing":
            found.append(f"{place} is missing")
        elif kind == "extra_forbidden":
            known = _known_keys(each["loc"], context) if context else ""
            found.append(f"unknown key {place}{known}")
        elif kind in _SHAPES:
            found.append(f"{place or whole} must be {_SHAPES[kind]}")
        else:
            message = each["msg"].removeprefix("Value error, ")
            found.append(f"{place}: {message[:1].lower()}{message[1:]}" if place else message)
    return found


def _known_keys(place: tuple[int | str, ...], context: dict[object, Any]) -> str:
    """Return what to say of an unknown key: the nearest one of its mapping, or all."""
    mapping = context["document"]
    for part in place[:-1]:
        mapping = mapping[part]
    return nearest_key(place[-1], context[id(mapping)])
