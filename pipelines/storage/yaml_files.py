"""Files of YAML that a user writes: read whole, checked by pydantic, refused with all problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from sotto.errors import ParameterError, did_you_mean
from sotto.plan.document import yaml_reason

T = TypeVar("T")


class YamlModel(BaseModel):
    """A mapping of a file: unknown keys are refused, and nothing changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _note_keys(cls, found: Any, info: Any) -> Any:
        """Note in the context, for the error, which keys there are in place of an unknown one."""
        if isinstance(found, dict) and info.context is not None:
            info.context.update({("keys", name): cls.model_fields for name in found})
        return found


def read_yaml(path: Path, kind: type[T], empty: object, more: str = "") -> T:
    """Return what a file says, as a type that pydantic validates.

    ``empty``: the document of a file without any; ``more``: what is to stand at the file's end.
    Paths in it are relative to its folder.

    Raises ParameterError, with all that is wrong and what is expected.
    """
    context: dict[object, object] = {"folder": path.parent}
    try:
        found = yaml.safe_load(path.read_text("utf-8") + more)
        return TypeAdapter(kind).validate_python(empty if found is None else found, context=context)
    except IsADirectoryError:
        raise ParameterError(f"{path} must be a file of YAML; got a folder: name a file") from None
    except ValidationError as error:
        said = problems_of(error, context)
        raise ParameterError("\n".join(f"{path}: {each}" for each in said)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ParameterError(f"{path} cannot be read as YAML: {yaml_reason(error)}") from None


_LIST = "a list of one or more, such as [a, b]"
_SHAPES = {"model_type": "a mapping, such as {key: value}", "tuple_type": _LIST, "too_short": _LIST}


def problems_of(error: ValidationError, context: Any = None, whole: str = "the file") -> list[str]:
    """Return a line a problem: where it is, and what is expected; ``whole``: a name of it all."""
    found: list[str] = []
    for each in error.errors(include_url=False):
        kind, message = each["type"], each["msg"].removeprefix("Value error, ")
        place = ".".join(f"{part + 1}" if isinstance(part, int) else part for part in each["loc"])
        if kind == "too_short" and any(f"{place}." in line for line in found):
            # Pydantic counts only values without a problem.
            continue
        message = f"{place}: {message[:1].lower()}{message[1:]}" if place else message
        if kind == "missing":
            message = f"{place} is missing"
        elif kind == "extra_forbidden":
            keys = (context or {}).get(("keys", each["loc"][-1]), ())
            near = did_you_mean(str(each["loc"][-1]), keys) or f"; its keys are {', '.join(keys)}"
            message = f"unknown key {place}{near if keys else ''}"
        elif kind in _SHAPES:
            message = f"{place or whole} must be {_SHAPES[kind]}"
        found.append(message)
    return found
