"""The HTTP interface: formats, pages, what has not changed, what is refused, what is public."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asgi_client import Answer, get
from fastapi import FastAPI
from invented_results import PLAN, write_results

from pipelines.results.api import create_router
from pipelines.results.reader import ResultsReader
from sotto.plan.compiled import CompiledPlan


class Api:
    """The interface, in an application of its own."""

    def __init__(
        self, file: Path, *, public: bool = False, plans: Sequence[CompiledPlan] = ()
    ) -> None:
        self.app = FastAPI()
        reader = ResultsReader(f"sqlite:///{file}", plans=plans)
        self.app.include_router(create_router(reader, public=public))

    def get(self, path: str, **more: Mapping[str, object]) -> Answer:
        return get(self.app, f"/api/v1/{path}", more.pop("query", None), **more)

    def described(self) -> Any:
        return get(self.app, "/openapi.json").json()["paths"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_results(tmp_path)
    return tmp_path / "results.db"


@pytest.fixture
def api(file: Path) -> Api:
    return Api(file)


def test_estimates_are_answered(api: Api) -> None:
    query = {"metric": "theme", "item": "light", "newest": True, "since": "2025-01-01"}
    found = api.get("estimates", query=query).json()
    assert found["next"] is None
    assert [each["segment"] for each in found["estimates"]] == ["", "os=<b>", "os=linux"]
    first, withheld, _ = found["estimates"]
    assert first["window_start"] == "2025-01-16T00:00:00.000Z"
    assert (first["value"], first["reports_by_level"]) == (0.6, [0, 300, 600])
    assert (withheld["value"], withheld["withheld"]) == (None, "7 reports, the plan asks for 20")
    assert api.get("budgets").json()["budgets"][0]["accepted"] == 1400
    assert api.get("health").json()["collectors"][0]["generation"] == 1
    assert api.get("plans").json() == {"plans": []}
    later = {"metric": "theme", "item": "light", "segment": "os=linux", "since": "2030-01-01"}
    assert api.get("shares", query=later).json() == {"shares": [], "next": None}
    assert [each["windows"] for each in api.get("metrics").json()["metrics"]] == [1, 2, 3, 2]


def test_every_format_has_the_same_rows(api: Api) -> None:
    expected = [each["share"] for each in api.get("shares").json()["shares"]]
    text = api.get("shares", query={"format": "csv"})
    assert text.headers["content-type"] == "text/csv; charset=utf-8"
    assert [float(each["share"]) for each in csv.DictReader(io.StringIO(text.text))] == expected
    parquet = api.get("shares", query={"format": "parquet"})
    assert pq.read_table(io.BytesIO(parquet.body))["share"].to_pylist() == expected
    arrow = api.get("shares", query={"format": "arrow"})
    assert pa.ipc.open_file(arrow.body).read_all()["share"].to_pylist() == expected


def test_pages_are_linked(api: Api) -> None:
    path, items, pages = "estimates?limit=3&item=light&item=other&format=csv", [], 0
    while path:
        answer = api.get(path)
        items += [each["item"] for each in csv.DictReader(io.StringIO(answer.text))]
        link = re.fullmatch('<(.+)>; rel="next"', answer.headers.get("link", ""))
        path, pages = f"estimates{link[1]}" if link else "", pages + 1
    assert (len(items), pages) == (10, 4)
    assert items == ["light", "other"] * 5
    first = api.get("windows", query={"limit": 9}).json()
    rest = api.get("windows", query={"cursor": first["next"]}).json()
    assert [each["metric"] for each in rest["windows"]] == ["visits"]


def test_what_has_not_changed_is_not_sent_again(api: Api, file: Path) -> None:
    for path in ("shares", "health", "plans"):
        etag = api.get(path).headers["etag"]
        again = api.get(path, headers={"if-none-match": f'"other", W/{etag}'})
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == etag
    etag = api.get("shares").headers["etag"]
    assert api.get("shares", query={"format": "csv"}, headers={"if-none-match": etag}).body
    write_results(file.parent, generation=2)
    assert api.get("shares", headers={"if-none-match": etag}).status == 200


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("shares?metirc=colour", "there is no parameter metirc"),
        ("health?metirc=colour", "there is no parameter metirc"),
        ("shares?metric=a&metric=b", "metric: it is given more than once"),
        ("windows?kind=share", "there is no parameter kind"),
        ("shares?since=7", "since: a time must be such as 2013-06-01"),
        ("shares?limit=0", "limit: "),
        ("shares?metric=%00", "metric: "),
        ("shares?format=xlsx", "format: "),
        ("shares?cursor=x", "cursor: it is not the `next` of a page"),
        (f"shares?cursor={'W1tb' * 10_000}", "cursor: it is not the `next` of a page"),
        ("shares?cursor=WzFd", "cursor: it does not follow a page of this view"),
        ("estimates?metric=them", "no results of the metric 'them'; did you mean 'theme'?"),
        ("windows?plan=x&metric=theme", "no results of the plan 'x'; there are look"),
        ("effects?collector=app.exmple", "no results of the collector 'app.exmple'; did you"),
        ("budgets?collector=x", "no results of the collector 'x'; there are app.example"),
        ("metrics?version=2", "no results of the version 2; there are 1"),
        ("retention?segment=os=lin", "no results of the segment 'os=lin'; did you mean 'os=lin"),
        (
            "estimates?metric=speed&kind=share",
            "no results of the kind 'share'; there are cdf, mean",
        ),
        ("shares?metric=theme&item=light&item=dusk&since=2030-01-01", "of the item 'dusk'; there"),
        ("ranges?metric=them", "no results of the metric 'them'; did you mean 'theme'?"),
        ("ranges", "metric: Field required"),
        ("ranges?metric=theme&newest=true", "there is no parameter newest"),
        ("ranges?metric=theme&since=2026-01-01", "no window of 'theme' lies from 2026-01-01"),
        ("ranges?metric=theme&since=2025-02-01&until=2025-01-01", "must end after it begins"),
        ("ranges?metric=theme&segment=os=beos", "or unknown; segments that all windows have"),
        ("comparisons?metric=theme", "against: Field required"),
        ("comparisons?metric=theme&against=previous", "two ends"),
    ],
)
def test_what_is_wrong_is_said(weekly: Api, path: str, title: str) -> None:
    answer = weekly.get(path)
    assert answer.status == (404 if "of the " in title else 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert title in answer.json()["title"]
    assert answer.json()["status"] == answer.status


def test_one_who_cannot_wait_is_told_when_to_ask_again(file: Path, monkeypatch) -> None:
    monkeypatch.setattr("pipelines.http.kept._WAITING", 0)
    busy = Api(file).get("shares")
    assert (busy.status, busy.headers["retry-after"]) == (503, "5")


def test_results_that_cannot_be_read_name_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "results.db"
    api = Api(file)
    answer = api.get("windows")
    assert (answer.status, answer.json()["title"]) == (503, "there are no results yet")
    file.write_bytes(b"no database" * 1000)
    answer = api.get("health")
    assert answer.json() == {"title": "the results cannot be read now", "status": 503}
    assert answer.headers["retry-after"] == "5"
    assert "not a database" in caplog.text


def test_the_public_is_shown_no_operations(file: Path) -> None:
    api = Api(file, public=True)
    for path in ("health", "budgets", "rejections"):
        assert api.get(path).status == 404
    described = api.described()
    assert "/api/v1/shares" in described
    assert not any("health" in path or "budgets" in path for path in described)


def test_the_description_says_what_each_column_means(api: Api) -> None:
    described = api.described()["/api/v1/shares"]["get"]
    schema = described["responses"]["200"]["content"]["application/json"]["schema"]
    column = schema["properties"]["shares"]["items"]["properties"]["detection_floor"]
    assert column["description"] == "smallest true share that is reliably distinguished from zero"
    assert {each["name"] for each in described["parameters"]} >= {"metric", "segment", "item"}


@pytest.fixture(scope="module")
def weekly(tmp_path_factory: pytest.TempPathFactory) -> Api:
    """Three windows of 900 reports each, whose plan is known."""
    write_results(folder := tmp_path_factory.mktemp("weekly"))
    return Api(folder / "results.db", plans=[PLAN])


def test_ranges_of_windows_are_put_together(weekly: Api) -> None:
    query = {"metric": "theme", "until": "2025-01-23"}
    found = weekly.get("ranges", query=query).json()["ranges"]
    light = next(each for each in found if each["item"] == "light")
    assert (light["value"], light["reports"], light["windows"]) == (pytest.approx(0.6), 2700, 3)
    assert [light[end][:10] for end in ("start", "end")] == ["2025-01-02", "2025-01-23"]
    assert light["standard_error"] == pytest.approx(0.02 / 3**0.5)
    text = weekly.get("ranges", query={**query, "format": "csv"}).text
    assert [float(each["value"]) for each in csv.DictReader(io.StringIO(text))] == [
        each["value"] for each in found
    ]
    etag = weekly.get("ranges", query=query).headers["etag"]
    assert weekly.get("ranges", query=query, headers={"if-none-match": etag}).status == 304


def test_ranges_are_compared(weekly: Api) -> None:
    query = {"metric": "theme", "since": "2025-01-09", "against": "2025-01-02..2025-01-09"}
    found = weekly.get("comparisons", query=query).json()["comparisons"]
    other = next(each for each in found if each["item"] == "other")
    assert other["difference"] == pytest.approx(0.015)
    assert other["standard_error"] == pytest.approx(error := 0.02 * (3 / 2) ** 0.5)
    # The rows' errors are those of few answers by chance: half a step is added to 1.96 of them.
    assert 1 < (other["high"] - other["difference"]) / (1.96 * error) < 1.02
    assert 1 < other["smallest_found"] / (2.8016 * error) < 1.02
    assert (other["against_start"], other["against_reports"]) == ("2025-01-02T00:00:00.000Z", 900)
    assert other["significant"] is False
