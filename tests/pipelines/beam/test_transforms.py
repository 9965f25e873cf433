"""The public transforms with sources of others: they come to what a run comes to.

``TestStream`` moves the watermark; it works on ``BundleBasedDirectRunner`` alone. There all stages
see a watermark at once, so that it stops wherever a timer stands, and just after it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.testing import test_stream
from apache_beam.transforms.window import TimestampedValue
from apache_beam.typehints.decorators import TypeCheckError
from apache_beam.utils.timestamp import Timestamp
from report_logs import Sent
from step_plans import DAY
from streaming_logs import (
    Outcome,
    honest,
    outcome_of_run,
    records,
    shard_said,
    small_plans,
    streamed,
    write,
)

from pipelines.aggregation import decode, quarantine
from pipelines.beam import (
    AggregateReports,
    CountReports,
    DecodeReports,
    FixedPlans,
    PlansFolder,
    ReadReports,
    SottoOptions,
    WriteEstimates,
    WriteRejects,
)
from pipelines.beam.counting import ROW_BYTES, to_part
from pipelines.beam.decoding import shard_key
from pipelines.beam.stream import closing_time, next_settling
from pipelines.results.documents import Document, HealthDocument, parse
from pipelines.sources.log import EmbeddedLog
from sotto.clocks import now_ms
from sotto.errors import AggregationError, ParameterError
from sotto.plan.registry import Registry

pytestmark = pytest.mark.slow

HOUR = 3_600_000
FNAPI = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


@dataclass(frozen=True)
class Folder:
    """A sink: a file of lines, in hexadecimal."""

    path: Path

    def write(self, items: Sequence[bytes | Document]) -> None:
        with open(self.path, "a", encoding="ascii") as file:
            for item in items:
                parts = (item,) if isinstance(item, bytes) else item.record
                file.write(" ".join(part.hex() for part in parts) + "\n")

    def close(self) -> None: ...

    def lines(self) -> list[list[bytes]]:
        text = self.path.read_text("ascii") if self.path.exists() else ""
        return [[bytes.fromhex(word) for word in line.split()] for line in text.splitlines()]


class Case(NamedTuple):
    """Messages with their append times, and what a run makes of them."""

    messages: list[Sent]
    wanted: Outcome


def appended(logs: dict[str, list[Sent]]) -> list[Sent]:
    """Return the messages of all lanes; append times of a lane only rise."""
    found = []
    for lane in logs.values():
        latest = 0
        for each in lane:
            latest = max(latest, each.append)
            found.append(Sent(latest, each.message))
    return sorted(found)


@lru_cache
def case(periods: int) -> Case:
    logs = records("two", 1, periods)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "log"), logs)
        wanted = outcome_of_run(Path(folder, "log"), Path(folder, "state"), small_plans())
    return Case(appended(logs), wanted)


def at(sent: Sent) -> TimestampedValue:
    return TimestampedValue(sent.message, Timestamp(micros=sent.append * 1000))


def create(messages: Iterable[Sent]) -> beam.PTransform:
    return beam.Create(list(messages)) | beam.Map(at).with_output_types(bytes)


def run(folder: Path, source: beam.PTransform, runner: str = FNAPI) -> Any:
    """Run a pipeline over a source; return its result."""
    documents, rejects = Folder(folder / "documents"), Folder(folder / "rejects")
    options = SottoOptions([], sotto_job="mine", streaming=runner != FNAPI)
    pipeline = beam.Pipeline(runner, options)
    aggregated = pipeline | source | AggregateReports(FixedPlans.of(small_plans()))
    aggregated.documents | WriteEstimates(documents)
    aggregated.rejected | WriteRejects(rejects)
    result = pipeline.run()
    result.wait_until_finish()
    return result


def outcome(folder: Path, source: beam.PTransform, runner: str = FNAPI) -> Outcome:
    """Return what a pipeline over a source leaves in its sinks."""
    run(folder, source, runner)
    documents, rejects = Folder(folder / "documents"), Folder(folder / "rejects")
    said = sorted((parse(*each) for each in documents.lines()), key=lambda each: each.revision)
    newest = {each.key: each for each in said}
    found = [reject for (line,) in rejects.lines() for reject in quarantine.unpack(line)]
    return streamed(newest.values(), found)


def test_a_bounded_source_of_single_messages_comes_to_what_a_run_comes_to(tmp_path):
    messages, wanted = case(6)
    assert outcome(tmp_path, create(messages))._asdict() == wanted._asdict()


@pytest.mark.parametrize(
    ("chains", "parts"), [(1 << 18, 1), (100, 4), (1, small_plans()[0].shards)]
)
def test_a_bounded_period_has_as_many_parts_as_its_rows_fill(tmp_path, monkeypatch, chains, parts):
    monkeypatch.setattr(decode, "CHAINS", chains)
    plans = FixedPlans.of(small_plans())
    made = [to_part((shard_key(7, each), b""), plans, {7: 400 * ROW_BYTES}) for each in range(64)]
    assert {key for key, _ in made} == {shard_key(7, part) for part in range(parts)}
    messages, wanted = case(1)
    assert outcome(tmp_path, create(messages))._asdict() == wanted._asdict()


def test_counters_of_beam_say_what_became_of_reports(tmp_path):
    messages, wanted = case(1)
    found: Counter[str] = Counter()
    for counter in run(tmp_path, create(messages)).metrics().query()["counters"]:
        if counter.key.metric.namespace == "sotto":
            found[counter.key.metric.name] += counter.committed
    # In fates the rejected reports of revoked pseudonyms have the place of these.
    assert found.pop("revoked_pseudonyms") > 0
    assert found.pop("step_ms_count") > 0
    found.pop("step_ms_sum", None)  # Steps that take less than half a millisecond add nothing.
    counted = ("counted", "superseded", "duplicates")
    names = {"reports": "decoded", **{name: name for name in counted}}
    assert found == {
        names.get(fate, f"rejected_{fate}"): number
        for fate, number in wanted.fates.items()
        if number
    }


def stops(messages: Sequence[Sent]) -> list[int]:
    """Return times at which a timer stands, or may, ms, and those just after it."""
    registry, found = Registry(small_plans()), set[int]()
    for time, _ in messages:
        found.add(time)
        settled = time
        for _ in range(4):
            settled = next_settling(settled, registry)
            found.add(settled)
        for period in range(time // registry.period - 3, time // registry.period + 2):
            over = closing_time(period, registry)
            found |= {over, over + 1, over + 2}
    return sorted(each for each in found if each >= messages[0].append)


def stepwise(messages: Sequence[Sent], behind: int, last: Sent) -> beam.PTransform:
    """Return messages, each ``behind`` ms after its append time, and ``last`` after all of them."""
    made, left = test_stream.TestStream(coder=beam.coders.BytesCoder()), list(messages)
    for stop in [each for each in stops(messages) if each <= messages[-1].append]:
        made = made.advance_watermark_to(Timestamp(micros=stop * 1000))
        part = [each for each in left if each.append + behind <= stop]
        left = left[len(part) :]
        if part:
            made = made.add_elements([at(each) for each in part]).advance_processing_time(60)
    made = made.add_elements([at(each) for each in (*left, last)]).advance_processing_time(60)
    return made.advance_watermark_to_infinity()


def more(found: Outcome, wanted: Outcome) -> dict[str, int]:
    """Return the reports by what became of them, of those that one has beside the other's."""
    differences = Counter(found.fates)
    differences.subtract(wanted.fates)
    return {fate: n for fate, n in differences.items() if n}


def test_an_unbounded_source_that_lies_about_time_comes_to_what_a_run_comes_to(tmp_path):
    """Messages come hours behind the watermark, and one again when its period is closed."""
    messages, wanted = case(1)
    again = next(each for each in messages if each in honest(4, 1, 1))
    found = outcome(tmp_path, stepwise(messages, 3 * HOUR, again), "BundleBasedDirectRunner")
    assert found[:3] == wanted[:3]
    assert more(found, wanted) == {"reports": 1, "late": 1}


def test_the_first_report_of_a_shard_behind_a_closed_period_changes_no_closed_window(
    tmp_path, caplog
):
    """Behind a watermark that jumps it would have been in time, and timers fire alike."""
    every, _ = case(1)
    late = next(each for each in every if each in honest(4, 1, 1))
    others = [each for each in every if shard_said(each.message) != shard_said(late.message)]
    write(tmp_path / "log", {"one": others})
    wanted = outcome_of_run(tmp_path / "log", tmp_path / "state", small_plans())
    found = outcome(tmp_path, stepwise(others, 0, late), "BundleBasedDirectRunner")
    assert more(found, wanted) == {"reports": 1, "counted": 1}
    assert found.periods == wanted.periods
    assert set(wanted.windows) <= set(found.windows)
    assert set(wanted.estimates) <= set(found.estimates)
    # A window without any report before is published with it.
    assert {dict(row)["n"] for row in set(found.windows) - set(wanted.windows)} == {"1"}
    assert "periods: what came after the end is left out" in caplog.text


def test_a_message_from_the_future_is_rejected_and_changes_no_other(tmp_path):
    """Its reports would make a period that never ends."""
    messages, wanted = case(1)
    found = outcome(tmp_path, create([*messages, Sent(now_ms() + 2 * DAY, b"a message")]))
    assert more(found, wanted) == {"future": 1}
    assert found[:3] == wanted[:3]
    documents = [parse(*each) for each in Folder(tmp_path / "documents").lines()]
    assert [each.health["future"] for each in documents if isinstance(each, HealthDocument)] == [1]


def test_a_grouping_that_changes_append_times_shows(tmp_path):
    """The end of its window is their time afterwards, which lies in the future."""
    messages, _ = case(1)
    batched = (
        create(messages) | beam.WithKeys(0) | beam.GroupByKey() | beam.FlatMap(lambda kv: kv[1])
    )
    found = outcome(tmp_path, batched.with_output_types(bytes))
    assert found.estimates == []
    assert found.fates["future"] == len(messages)


@pytest.mark.parametrize(
    ("element", "said"),
    [(b"secret", "has no timestamp"), ("secret", "; got str: "), (None, "; got NoneType: ")],
)
def test_an_element_against_the_contract_is_an_error_without_its_content(tmp_path, element, said):
    source = beam.Create([element]) | beam.Map(lambda each: each).with_output_types(Any)
    with pytest.raises(ParameterError, match=said) as raised:
        outcome(tmp_path, source)
    assert "secret" not in str(raised.value)


def test_messages_with_their_keys_are_refused_when_the_pipeline_is_made(tmp_path):
    """ReadFromKafka gives such pairs; their values are the messages."""
    with pytest.raises(TypeCheckError, match="expected Union"):
        outcome(tmp_path, beam.Create([(b"key", b"a message")]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "give --sotto_job"),
        ({"sotto_job": b"mine"}, "a text: give --sotto_job"),
        (
            {"sotto_job": "mine", "sotto_linger_ms": 0},
            "linger 0 must be a whole number of at least",
        ),
        ({"sotto_job": "mine", "sotto_publish_every_ms": "1s"}, "publish_every '1s' must be"),
        ({"sotto_job": "mine", "sotto_idle_ms": None}, "idle None must be"),
    ],
)
def test_options_are_checked_when_the_pipeline_is_made(options, said):
    plans = FixedPlans.of(small_plans())
    with pytest.raises(ParameterError, match=said):
        beam.Pipeline(FNAPI, SottoOptions([], **options)) | create([]) | AggregateReports(plans)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DecodeReports({"plan": 1}), r"FixedPlans.of\(\[...\]\) or .*; got dict"),
        (lambda: CountReports(small_plans()), "; got list"),
        (lambda: AggregateReports(None), "; got NoneType"),
        (lambda: ReadReports("log", FixedPlans.of(small_plans())), "a source .*; got str"),
        (lambda: EmbeddedLog(Path("nowhere")).names(), "there is no log in nowhere: expected"),
        (lambda: PlansFolder("nowhere").registry(), r"nowhere has no plans yet: .*keep\("),
        (lambda: WriteEstimates("sqlite:///a.db"), "a sink, such as open_sink.*; got str"),
        (lambda: FixedPlans.of([{"version": 1}]), "from_json.*; got dict"),
        (lambda: PlansFolder("plans").keep(["plan.json"]), "from_json.*; got str"),
        (
            lambda: FixedPlans.of(small_plans(), {small_plans()[0].fingerprint: {"sahde": ["x"]}}),
            "no plan that is given has the string metrics sahde",
        ),
        (lambda: FixedPlans.of(small_plans(), {b"none": {"shade": ["x"]}}), "metrics shade"),
    ],
)
def test_what_no_pipeline_is_made_of_is_refused_at_once(make, said):
    with pytest.raises((ParameterError, AggregationError), match=said):
        make()
