"""The contract of sinks, held by PostgreSQL."""

from __future__ import annotations

import pytest
import sqlalchemy as sql
from contract.test_sinks import (  # noqa: F401
    Held,
    Served,
    held_in,
    sink,
    test_a_closed_sink_opens_again,
    test_a_document_replaces_all_rows_of_its_key_and_no_others,
    test_a_sink_crosses_processes_before_it_is_used,
    test_a_window_without_estimates_goes_and_does_not_come_back,
    test_documents_of_another_job_are_counted_and_left,
    test_order_and_batches_do_not_matter,
    test_several_workers_write_at_the_same_time,
    test_what_is_written_is_held_and_written_again_changes_nothing,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def served(url: sql.URL) -> Served:
    def held() -> Held:
        engine = sql.create_engine(url, poolclass=sql.pool.NullPool)
        with engine.connect() as connection:
            return held_in(
                lambda query: [tuple(row) for row in connection.execute(sql.text(query))],
                "stored_estimates",
            )

    return Served(url.render_as_string(hide_password=False), held)
