"""A plan's fingerprint depends on everything that decides about bytes, and on nothing else."""

import copy
import hashlib

import pytest
from agreed_plans import DAY, canonical, compiled, metric_document, plan_document

from pipelines.beam.counting import window_group
from sotto.errors import PlanError
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

#: Fields of which plans may differ and be the same on the wire, and other values of them.
OUTSIDE = {
    "owner": "someone@fleet.example",
    "expires": 1_900_000_000_001,
    "retention": DAY,
    "description": "How flights leave",
    "purpose": "We look for delays",
    "groups": {"all": "All of the questions"},
}
METRIC_OUTSIDE = {
    "unit": "cm",
    "question": "Do you?",
    "description": "What it looks like",
    "purpose": "To know",
    "data_type": "crash",
    "otel": {"instrument": "ui.painted", "attribute": "shade"},
}
#: All others but the format, and other values.
INSIDE = {
    "collector": "other.example",
    "plan": "arrivals",
    "version": 2,
    "period": 14 * DAY,
    "resolution": 2 * 3_600_000,
    "grace": 2 * DAY,
    "shards": 16,
    "ceilings": {"period": 12_000_000, "lifetime": 640_000_001},
}
METRIC_INSIDE = {
    "name": "hue",
    "type": "boolean",
    "mechanism": {"name": "oue", "domain_size": 3},
    "missing": True,
    "window": 7 * DAY,
    "repeat": {"kind": "every", "limit": 1},
    "ladder": [{"epsilon": 500_000, "after": 0}],
    "panel": 13,
    "domain": ["a", "c"],
    "outside": "a",
    "range": [0.0, 2.0],
    "group": "others",
}


def rich():
    """A document that has every field a compiled plan can have."""
    document = plan_document()
    document["metrics"][0]["panel"] = 2
    document["metrics"][2]["unit"] = "mm"
    document["description"] = "How flights depart"
    document["purpose"] = "To find what delays them"
    document["groups"] = {"all": "All questions"}
    document["metrics"][0] |= {
        "description": "Its colour",
        "purpose": "We paint",
        "data_type": "other",
        "otel": {"instrument": "ui.painted", "attribute": "colour"},
    }
    document["metrics"].append(
        metric_document(
            "asked",
            type="survey",
            mechanism={"name": "warner"},
            domain=None,
            outside=None,
            question="Did you?",
        )
    )
    for metric in document["metrics"]:
        metric["group"] = "all"
    return document


def fingerprint(document):
    return CompiledPlan.from_json(canonical(document)).fingerprint


def test_every_field_is_either_on_the_wire_or_not():
    document = rich()
    assert document.keys() == {"format", "metrics"} | INSIDE.keys() | OUTSIDE.keys()
    fields = set().union(*(metric.keys() for metric in document["metrics"]))
    assert fields == METRIC_INSIDE.keys() | METRIC_OUTSIDE.keys()


@pytest.mark.parametrize("key", [*OUTSIDE, *METRIC_OUTSIDE])
def test_what_decoding_does_not_need_is_not_in_the_fingerprint(key):
    document, changed = rich(), rich()
    if key in OUTSIDE:
        changed[key] = OUTSIDE[key]
    else:
        place = next(metric for metric in changed["metrics"] if key in metric)
        place[key] = METRIC_OUTSIDE[key]
    assert document != changed
    assert fingerprint(document) == fingerprint(changed)
    first, second = (CompiledPlan.from_json(canonical(each)) for each in (document, changed))
    assert first.digest != second.digest
    # A later run may take it for the earlier one; which of two counts in one run is not guessed.
    with pytest.raises(PlanError, match="twice"):
        Registry([first, second])


@pytest.mark.parametrize("key", [*INSIDE, *METRIC_INSIDE])
def test_what_decides_about_bytes_is_in_the_fingerprint(key):
    """Whatever else a change would break: the hash is taken of the document as it stands."""
    document, changed = rich(), copy.deepcopy(rich())
    if key in INSIDE:
        changed[key] = INSIDE[key]
    else:
        place = next(metric for metric in changed["metrics"] if key in metric)
        place[key] = METRIC_INSIDE[key]
    assert hashed(document) != hashed(changed)


def hashed(document):
    """The fingerprint as ``docs/spec/formats.md`` describes it."""
    covered = {key: value for key, value in document.items() if key in INSIDE}
    covered["metrics"] = [
        {key: value for key, value in metric.items() if key in METRIC_INSIDE}
        for metric in document["metrics"]
    ]
    return hashlib.sha256(b"sotto.fingerprint\0" + canonical(covered)).digest()


def test_a_fingerprint_is_the_hash_that_is_described():
    plan = CompiledPlan.from_json(canonical(rich()))
    assert plan.fingerprint == hashed(rich())
    assert plan.fingerprint_hex == hashed(rich()).hex()


def test_a_version_of_a_plan_has_one_fingerprint():
    first, second = compiled(), compiled(grace=2 * DAY)
    with pytest.raises(PlanError) as caught:
        Registry([first, second])
    said = str(caught.value)
    assert "plan departures version 1 has two fingerprints" in said
    assert first.fingerprint_hex in said
    assert second.fingerprint_hex in said
    assert "under a new version" in said
    assert len(Registry([first, compiled(grace=2 * DAY, version=2)]).plans) == 2


def test_versions_that_differ_in_texts_or_groups_are_counted_together():
    document = rich()
    document["version"] = 2
    document["groups"] = {"all": "All", "some": "Some"}
    document["metrics"][0] |= {"description": "Another", "group": "some", "data_type": "crash"}
    document["metrics"][0]["otel"] = {"instrument": "ui.drawn", "attribute": "colour"}
    del document["metrics"][0]["purpose"]
    first, second = (CompiledPlan.from_json(canonical(each)) for each in (rich(), document))
    assert first.fingerprint != second.fingerprint
    registry = Registry([first, second])
    for metric in first.metrics:
        alike = registry.same[first.fingerprint, metric.index]
        assert [each.plan.version for each in alike] == [1, 2]
        other = second.metric(metric.name)
        assert window_group(first, metric) == window_group(second, other)
