"""Master data: each record once, in its day, whatever fails, and as it was at any offsets."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.spark.files import Folder
from headrace.log import Group, Log, Topic
from headrace.views.archive.manifests import ArchiveStep
from headrace.views.errors import ViewError
from headrace.views.feeds import feed_of
from headrace.views.master.masterdata import Master
from headrace.views.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "n int, at timestamp"
NUMBERS = hr.Topic("numbers", schema=SCHEMA, event_time="at", partitions=2)


class Killed(Exception):
    """The process ends here."""


def append(topic: Topic, partition: int, *hours: int | None) -> None:
    """Records of these hours of 1970, each with its hour as its number."""
    start = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    rows: list[Any] = [{"n": hour, "at": None if hour is None else start + dt.timedelta(hours=hour)} for hour in hours]
    topic.append(partition, topic.batch(rows, timestamps=[0] * len(rows)))


def numbers(master: Master, since: Offsets, until: Offsets) -> list[int]:
    pipeline = hr.Pipeline(spark=master.spark)
    found = master.events(pipeline, since, until) | hr.Collect()
    pipeline.run().wait()
    return sorted(row.n for row in found)


def test_records_are_archived_once_and_read_as_of_any_offsets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "log")
    topic = log.create("numbers", values=SCHEMA, partitions=2)

    def master() -> Master:
        return Master(spark, feed_of(log, NUMBERS), path=f"{tmp_path}/master")

    assert master().archive() is None
    append(topic, 0, 1, 30, -5, None)
    first = master().archive({0: 2})
    assert first is not None
    assert (first.since, first.until) == ({0: 0, 1: 0}, {0: 2, 1: 0})
    assert Group(log, "numbers", "master").committed() == {0: 2, 1: 0}

    append(topic, 1, 2, 31)

    def killed(*given: object) -> None:
        raise Killed

    for where, name in ((Master, "_check"), (Folder, "put")):  # before and in the middle of the manifest
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(where, name, killed)
            master().archive()
        assert master().reached() == {0: 2, 1: 0}
        assert len(list((tmp_path / "master/data").glob("step-000001-*"))) == 1  # what was left before is removed
    commits = []

    def commit(group: Group, offsets: dict[int, int]) -> None:
        commits.append(offsets)
        if len(commits) == 2:  # after the manifest
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Group, "commit", commit)
        master().archive()
    assert master().archive() is None  # it was done
    assert Group(log, "numbers", "master").lag() == {0: 0, 1: 0}

    again = master()
    assert [step.until for step in again.steps()] == [{0: 2, 1: 0}, {0: 4, 1: 2}]
    days = sorted(f"{path.parent.name[:11]}/{path.name}" for path in (tmp_path / "master/data").glob("*/_day=*"))
    assert days == [
        "step-000000/_day=1970-01-01",
        "step-000000/_day=1970-01-02",
        "step-000001/_day=1969-12-31",
        "step-000001/_day=1970-01-01",
        "step-000001/_day=1970-01-02",
        "step-000001/_day=__HIVE_DEFAULT_PARTITION__",  # what has no time is kept, too
    ]
    assert again.count({}, {0: 4, 1: 2}) == 6
    assert numbers(again, {}, {0: 4, 1: 2}) == [-5, 1, 2, 30, 31]
    assert numbers(again, {}, {0: 1, 1: 1}) == [1, 2]
    assert numbers(again, {0: 1}, {0: 3, 1: 2}) == [-5, 2, 30, 31]

    with pytest.raises(ViewError, match=r"archived up to .*, not yet to \{0: 9\}"):
        again.events(hr.Pipeline(spark=spark), {}, {0: 9})
    with pytest.raises(ViewError, match=r"ends at \{0: 4, 1: 2\}, and cannot be archived up to \{0: 9\}"):
        again.archive({0: 9})
    again.audit()


OFFSETS = st.dictionaries(st.integers(0, 2), st.integers(0, 6))


@given(st.lists(OFFSETS, max_size=4), OFFSETS, OFFSETS)
def test_steps_that_follow_on_count_every_record_once(moves: list[Offsets], since: Offsets, until: Offsets) -> None:
    steps, here = [], dict.fromkeys(range(3), 0)
    for number, move in enumerate(moves):
        there = {partition: at + move.get(partition, 0) for partition, at in here.items()}
        steps.append(ArchiveStep.read(ArchiveStep(number, here, there).write()))
        here = there
    records = {(partition, offset) for partition, end in here.items() for offset in range(end)}
    meant = {(partition, at) for partition, at in records if since.get(partition, 0) <= at < until.get(partition, 0)}
    assert sum(step.count(since, until) for step in steps) == len(meant)


@given(st.lists(st.lists(st.booleans(), max_size=6), max_size=4), st.integers(0, 24), st.integers(0, 24))
def test_steps_with_gaps_know_their_records_and_miss_none(steps: list[list[bool]], since: int, until: int) -> None:
    """Which offsets have a record, by step; the same of two partitions."""
    here, made, records = 0, [], set()
    for number, kept in enumerate(steps):
        there, count = here + len(kept), sum(kept)
        records |= {offset for offset, is_there in enumerate(kept, here) if is_there}
        step = ArchiveStep(number, {0: here, 1: here}, {0: there, 1: there}, {0: count, 1: count}, {"malformed": count})
        made.append(ArchiveStep.read(step.write()))
        here = there
    assert sum(step.records for step in made) == 2 * len(records)
    assert sum(step.bad["malformed"] for step in made) == len(records)
    meant = {offset for offset in records if since <= offset < until}
    counted = sum(step.count({0: since, 1: since}, {0: until, 1: until}) for step in made)
    assert 2 * len(meant) <= counted <= 2 * max(until - since, 0)
    if not records:
        assert counted == 0


def test_values_without_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    Log(tmp_path).create("numbers", values="json")
    with pytest.raises(ViewError, match=r"values of topic 'numbers' are json; .* create the topic with values='n int"):
        Master(spark, feed_of(tmp_path, NUMBERS), path=f"{tmp_path}/master")
