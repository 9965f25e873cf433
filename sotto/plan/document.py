"""The plan as it is written: YAML, its keys and types, before anything is chosen or compiled.

What a value may be *in itself* is checked here; what the values must be *together* is checked
once for all plans, compiled ones too, by :mod:`sotto.plan.checks`.
"""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, StrictInt, StrictStr, ValidationError

from sotto.errors import PlanError
from sotto.plan.errors import explain
from sotto.plan.fields import Day, Duration, Micro, Model, Panel, Text
from sotto.plan.metrics import MetricFile
from sotto.plan.serialization import MINIMUM_REPORTS


class CeilingsFile(Model):
    """Epsilon that a device may spend in one period, and in its lifetime."""

    period: Micro
    lifetime: Micro


class PlanFile(Model):
    """The whole file."""

    collector: StrictStr
    plan: StrictStr
    version: StrictInt
    owner: StrictStr
    expires: Day
    period: Duration
    ceilings: CeilingsFile
    resolution: Duration
    grace: Duration = 86_400_000
    retention: Duration = 30 * 86_400_000
    shards: StrictInt = 64
    panel: Panel = 1
    minimum_reports: StrictInt = MINIMUM_REPORTS
    authentication: Literal["none", "required"] = "none"
    metrics: dict[Text, Annotated[MetricFile, Field(discriminator="type")]]


def read_plan(text: str) -> PlanFile:
    """Read the text of a plan.

    Raises
    ------
    PlanError
        It is not YAML, a key is unknown, missing or there twice, or a value has the wrong type.
    """
    try:
        document = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise PlanError(_yaml_problem(error)) from None
    except (ValueError, RecursionError) as error:
        raise PlanError(f"the plan cannot be read as YAML: {error}") from None
    if not isinstance(document, dict):
        raise PlanError(
            "a plan is a YAML mapping with the keys " + ", ".join(PlanFile.model_fields)
        )
    try:
        return PlanFile.model_validate(document)
    except ValidationError as error:
        raise PlanError(explain(error)) from None


class _Loader(yaml.SafeLoader):
    """YAML's safe subset, with exact decimals, and without keys that are there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is there twice", problem_mark=key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_decimal(self, node: yaml.ScalarNode) -> Decimal | float:
        value: float = self.construct_yaml_float(node)
        try:
            return Decimal(str(node.value).replace("_", ""))
        except InvalidOperation:
            return value


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_decimal)


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    what = getattr(error, "problem", None) or "not YAML"
    return f"the plan cannot be read as YAML: {where}{what}"
