"""The streaming pipeline up to the end of what there is, on Beam's embedded runner.

Whatever is in a log, ``sotto stream --until-end`` comes to what a run comes to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import pytest
from bounded_streams import command, outcome_of
from every_type import every_plan, fleet, logged
from streaming_logs import aggregated, outcome_of_run, records, small_plans, write

from pipelines.beam import PlansFolder, decoding
from pipelines.beam.runners import Runner
from pipelines.beam.submission import JobFolder, Log, lay_out
from sotto.errors import AggregationError
from sotto_cli import main

pytestmark = pytest.mark.slow


def test_all_metric_types_however_few_are_decoded_together(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "BYTES", 2_000)
    logged(fleet(every_plan(), 12, seed=4), tmp_path)
    assert main(command(tmp_path, [every_plan()])) == 0
    wanted = outcome_of_run(tmp_path / "log", tmp_path / "state", [every_plan()])
    assert len({dict(row)["metric"] for row in wanted.estimates}) > 15
    assert outcome_of(tmp_path)._asdict() == wanted._asdict()


@pytest.mark.real_randomness
def test_it_comes_to_what_a_run_comes_to_and_hashes_of_python_play_no_part(tmp_path):
    write(tmp_path / "log", records("epochs", 0))
    program = [sys.executable, "-m", "sotto", *command(tmp_path, small_plans())]
    subprocess.run(program, check=True, env={**os.environ, "PYTHONHASHSEED": "77"}, timeout=600)
    assert outcome_of(tmp_path)._asdict() == aggregated("epochs", 0)._asdict()


def test_a_job_is_not_begun_twice(tmp_path, capsys):
    write(tmp_path / "log", records("two", 1, periods=1))
    # One without a sink has not begun.
    assert main(command(tmp_path, small_plans(), "--database", "duckdb://results")) == 2
    assert main(command(tmp_path, small_plans())) == 0
    assert main(command(tmp_path, small_plans())) == 2
    assert "has run before" in capsys.readouterr().err
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert main(command(tmp_path, [], "--from-scratch", "--database", other)) == 0


def test_a_savepoint_goes_with_the_folder_of_its_job(tmp_path, capsys):
    """Under another name, what its windows have published already would never be published."""
    write(tmp_path / "log", records("two", 1, periods=1))
    point = "--update"  # The embedded runner has no savepoints.
    assert main(command(tmp_path, small_plans(), point)) == 2
    assert "no job has run from" in capsys.readouterr().err
    assert not (tmp_path / "job").exists()
    assert main(command(tmp_path, small_plans())) == 0
    name = (tmp_path / "job" / "job.json").read_bytes()
    assert main(command(tmp_path, [], point, "--from-scratch")) == 2
    assert "--from-scratch begins without a state" in capsys.readouterr().err
    assert (tmp_path / "job" / "job.json").read_bytes() == name


def test_no_password_crosses_to_an_engine(tmp_path, capsys):
    write(tmp_path / "log", records("two", 1, periods=1))
    url = "postgresql+psycopg://sotto:open-sesame@127.0.0.1:1/results"
    engine = [
        "--runner=PortableRunner",
        "--job_endpoint=127.0.0.1:1",
        "--environment_type=LOOPBACK",
    ]
    assert main(command(tmp_path, small_plans(), "--database", url, *engine)) == 2
    said = capsys.readouterr().err
    assert "PGPASSFILE" in said
    assert "sesame" not in said
    assert not (tmp_path / "job").exists()


def test_of_two_who_submit_at_once_one_does(tmp_path):
    """Otherwise two jobs would count everything, and the folder would have the name of one."""
    folder = JobFolder(tmp_path / "job")
    first = folder.begin(small_plans(), {}, None, anew=False)
    for anew in (False, True):
        with pytest.raises(AggregationError, match="submitted"):
            folder.begin(small_plans(), {}, None, anew=anew)
    assert folder.job() == first
    assert folder.begin([], {}, first, anew=False) == first
    assert folder.begin([], {}, first, anew=True) != first


def ids(tmp_path, more=lambda pipeline: None):
    log = Log(tmp_path / "log", f"sqlite:///{tmp_path / 'results.db'}", tmp_path / "quarantine")
    pipeline = Runner().pipeline("job", {"sotto_job": "job"})
    more(pipeline)
    lay_out(pipeline, log, "job", PlansFolder("plans"))
    found = pipeline.to_runner_api().components.transforms
    return {name for name, each in found.items() if not each.subtransforms}


def test_ids_of_transforms_stay_for_savepoints_to_be_restored(tmp_path):
    """A new id ends the savepoints of running jobs: their timers and state hold it."""
    pinned = (Path(__file__).parent / "transform_ids.txt").read_text().split()
    assert sorted(ids(tmp_path)) == pinned


def test_a_transform_added_elsewhere_changes_no_id(tmp_path):
    def more(pipeline):
        pipeline | "Something else" >> beam.Create([1]) | beam.Map(print)

    assert ids(tmp_path, more) > ids(tmp_path)
