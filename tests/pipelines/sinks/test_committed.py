"""Stamps of what is published: a state directory that was restored from a copy is found out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipelines.sinks.committed import STAMP, check_stamps, stamp_of
from pipelines.storage.manifest import Manifest
from sotto.errors import BrokerError

TOPIC = "reports-estimates"


def manifest(*lineage: str, generation: int | None = None, state: str = "ours") -> Manifest:
    at = len(lineage) if generation is None else generation
    return Manifest(state=state, key=b"", generation=at, lineage=lineage)


def published(*manifests: Manifest) -> list[SimpleNamespace]:
    return [SimpleNamespace(headers=[stamp_of(each)]) for each in manifests]


def test_what_the_directory_has_committed_is_known():
    now = manifest("a", "b", "c")
    check_stamps(published(manifest("a"), manifest("a", "b"), now), now, TOPIC)


@pytest.mark.parametrize("other", [manifest("a", "b", "c", "d"), manifest("a", "x")])
def test_what_it_has_not_is_told(other):
    with pytest.raises(BrokerError, match=f"does not know: .* delete {TOPIC}, create it again"):
        check_stamps(published(manifest("a"), other), manifest("a", "b", "c"), TOPIC)


def test_generations_of_which_no_digest_is_kept_are_believed():
    check_stamps(published(manifest("a")), manifest("y", "z", generation=500), TOPIC)


def test_others_and_nonsense_say_nothing():
    others = published(manifest("x", "y", "z", state="theirs"))
    for headers in ([], [("else", b"ours 9 x")], [(STAMP, b"ours 9")], [(STAMP, None)]):
        others.append(SimpleNamespace(headers=headers))
    others += [SimpleNamespace(headers=[(STAMP, value)]) for value in (b"\xff", b"ours nine x")]
    check_stamps(others, manifest("a"), TOPIC)
