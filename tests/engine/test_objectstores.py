"""Tests checkpoints and outputs in an object store, which has no renames, with faults of the store and of drivers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.engine import s3job, s3store
from tests.engine.s3store import Store
from tests.scale import FULL, only_full

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store() -> Iterator[Store]:
    if not s3store.jars():
        reason = "no client of S3 in the cache: `make objectstore` fetches it from Maven Central"
        if "s3" in os.environ.get("HEADRACE_REQUIRE", "").split(","):
            pytest.fail(f"{reason}, and HEADRACE_REQUIRE says that it is required")
        pytest.skip(reason)
    store = Store()
    try:
        yield store
    finally:
        store.close()


def started(scratch: Path, *arguments: str) -> subprocess.Popen[bytes]:
    scratch.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
    with (scratch / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.engine.s3job", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=ROOT,
        )


def wait(job: subprocess.Popen[bytes]) -> int:
    """Waits for the end of a job, which does not outlive the test."""
    try:
        return job.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)


def finish(store: Store, scratch: Path, *script: str) -> None:
    assert wait(started(scratch, store.url, str(scratch), *script)) == 0, (scratch / "log").read_text()[-3000:]


def check(store: Store) -> None:
    """The sinks have each element once."""
    raw = s3job.output(store, "raw")
    assert raw.total() == len(raw) == 15 * s3job.FILES
    assert s3job.output(store, "rows").total() == 15 * s3job.FILES
    counts = s3job.output(store, "counts")
    assert counts.total() == len(counts) == 3 * s3job.FILES


@pytest.mark.slow("a driver with a Spark of its own")
@pytest.mark.timeout(900)
def test_a_stream_with_everything_in_a_store_that_is_busy_and_slow(store: Store, tmp_path: Path) -> None:
    s3job.fill(store)
    store.busy, store.slow = 0.02, True
    finish(store, tmp_path / "scratch")
    check(store)
    assert store.refused > 10 and store.listed > 10
    assert not [name for name in store.names() if ".new" in name]


@only_full("the stream alone runs in every run")
@pytest.mark.timeout(600)
@pytest.mark.slow("a driver with a Spark of its own")
def test_savepoints_batch_runs_and_master_data_in_a_store(store: Store, tmp_path: Path) -> None:
    s3job.fill(store)

    def race(write: str) -> None:
        if write == f"PUT /{s3store.BUCKET}/puts/raced":
            store.put("puts/raced", b"another's")  # after the driver looked, and before its own file is there

    store.on_write = race
    finish(store, tmp_path / "scratch", "savepoint")
    check(store)
    manifests = [key for key in store.names("savepoint/") if key.startswith("savepoint/headrace-")]
    puts = [write for write in store.writes if write.startswith("PUT") and "/savepoint/" in write]
    assert store.read("puts/first") == b"mine" and store.read("puts/raced") == b"another's"
    refused = ["puts/refused-2", "puts/refused-first", "puts/refused-raced"]
    assert [name for name in store.names("puts/") if "refused" in name] == refused
    assert b"existing='replace' puts a directory in the place of another by a rename" in store.read(refused[0])
    assert store.read("master/count") == b"3"
    assert s3job.output(store, "text", "batch") == s3job.output(store, "raw")
    assert "batch/csv/_manifest.json" in store.names("batch/csv/") and not store.names("batch/failed/")
    assert "forked/headrace-000000.json" in store.names("forked/")
    assert not [name for name in store.names("fork/") if not name.endswith("/")]  # the stream had read it all
    assert len(manifests) >= 2 and puts[-1].endswith("/savepoint/headrace-000000.json")


@only_full("a stream in the store runs in every run, and drivers over files are killed there")
@pytest.mark.timeout(600)
@pytest.mark.slow("drivers are killed and started again")
def test_a_driver_that_is_killed_between_two_writes_goes_on(store: Store, tmp_path: Path) -> None:
    s3job.fill(store)
    rng, kills, scratch = random.Random(3), 0, tmp_path / "scratch"
    for _ in range(3 if FULL else 1):
        left = rng.randrange(20, 150)
        job = started(scratch, store.url, str(scratch))

        def kill(write: str, job: subprocess.Popen[bytes] = job) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.killpg(job.pid, signal.SIGKILL)

        store.on_write = kill
        kills += wait(job) != 0
    store.on_write = lambda write: None
    finish(store, scratch)
    check(store)
    assert kills >= 2
