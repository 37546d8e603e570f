"""Batch jobs: one at a time, one of a view at a time, and what fails does not take others with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headrace.system.jobs import _REMEMBERED, Jobs
from headrace.views.errors import ViewError
from headrace.views.layers.batchlayer import ProgressListener


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    made = Jobs(clock=iter(range(0, 10**9, 1_000_000)).__next__)
    yield made
    made.close()


def test_jobs_run_in_order_and_one_of_a_view_is_refused_meanwhile(jobs: Jobs) -> None:
    go, order = threading.Event(), []

    def first(report: ProgressListener) -> int:
        report("computing", 3, 9)
        order.append("visitors")
        go.wait(60)
        return 1

    def second(report: ProgressListener) -> int:
        order.append("users")
        return 5

    job = jobs.begin("visitors", incremental=False, work=first)
    other = jobs.begin("users", incremental=True, work=second)
    with pytest.raises(ViewError, match="a batch version of view 'visitors' is being computed; try again"):
        jobs.begin("visitors", incremental=True, work=first)
    go.set()
    jobs.wait(60)
    assert order == ["visitors", "users"]
    assert [(each.state, each.version) for each in (job, other)] == [("done", 1), ("done", 5)]
    assert jobs.begin("visitors", incremental=False, work=second).id == 3


def test_what_fails_says_why_and_the_next_runs(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    def fails(report: ProgressListener) -> int:
        raise ViewError("the disk is full")

    jobs.run_between(lambda: 1 / 0)
    failed = jobs.begin("visitors", incremental=False, work=fails)
    fine = jobs.begin("users", incremental=False, work=lambda report: 2)
    jobs.wait(60)
    assert (failed.state, failed.error, failed.version) == ("failed", "the disk is full", None)
    assert (fine.state, fine.version) == ("done", 2)
    assert "division by zero" in caplog.text


def test_closing_ends_a_job_at_its_next_step(jobs: Jobs) -> None:
    begun, go = threading.Event(), threading.Event()

    def works(report: ProgressListener) -> int:
        begun.set()
        go.wait(60)
        report("loading", None, None)
        return 1

    job = jobs.begin("visitors", incremental=False, work=works)
    waiting = jobs.begin("users", incremental=False, work=lambda report: 2)
    begun.wait(60)
    closing = threading.Thread(target=jobs.close)
    closing.start()
    while not jobs.closing:
        pass
    go.set()
    closing.join(60)
    assert (job.state, job.error) == ("failed", "the system was stopped; submit the job again")
    assert waiting.state == "waiting"


def test_a_job_is_known_until_it_has_ended_however_many_there_are(jobs: Jobs) -> None:
    go = threading.Event()

    def works(report: ProgressListener) -> int:
        go.wait(60)
        return 1

    for number in range(3 * _REMEMBERED):
        jobs.begin(f"v{number}", incremental=False, work=works)
    assert len(jobs.list()) == 3 * _REMEMBERED
    with pytest.raises(ViewError, match="'v0' is being computed"):
        jobs.begin("v0", incremental=False, work=works)
    go.set()
    jobs.wait(60)
    last = jobs.begin("v0", incremental=False, work=works)
    jobs.wait(60)
    assert [job.id for job in jobs.list()] == list(range(2 * _REMEMBERED + 1, last.id + 1))
