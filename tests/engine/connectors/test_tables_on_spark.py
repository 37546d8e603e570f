"""Tests tables as sinks of pipelines on Spark: batches, streams that retract, and streams that crash and go on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import sqlalchemy as sa

import headrace as hr
from headrace.engine.connectors import tablewriter
from headrace.engine.connectors.tablewriter import TableWriter
from headrace.model.errors import PipelineError, TransformError
from tests.edges.tabling import connected, contents, execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Wins(NamedTuple):
    team: str
    points: int


def actions(folder: Path) -> Counter[tuple[str, str]]:
    """Writes files of JSON events, and returns the count of each action by the hour."""
    expected: Counter[tuple[str, str]] = Counter()
    for number in range(3):
        lines = []
        for minute in range(0, 180, 7):
            action = ("open", "close", "open", "ship")[(minute + number) % 4]
            lines.append(json.dumps({"action": action, "at": f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"}))
            expected[f"{minute // 60:02}", action] += 1
        (folder / f"{number}.json").write_text("\n".join(lines))
    return expected


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_hourly_counts_per_action_from_json_files(
    spark: SparkSession, tmp_path: Path, postgresql: str, sqlite: str, stream: bool
) -> None:
    (tmp_path / "in").mkdir()
    expected = actions(tmp_path / "in")
    p = hr.Pipeline(spark=spark)
    counts = (
        p
        | hr.ReadJson(f"{tmp_path}/in/*.json", schema="action string, at timestamp", event_time="at")
        | hr.WindowInto(hr.FixedWindows("1 hour"), allowed_lateness="1 day")
        | hr.GroupBy("action").aggregate(n=hr.count())
    )
    options: dict[str, Any] = {"key": ["action", "window_start"], "mode": "upsert"}
    counts | "here" >> hr.WriteTable(sqlite, "hourly", **options)
    counts | "there" >> hr.WriteTable(postgresql, "hourly", **options)
    p.run(stream=stream).wait()
    for url in (sqlite, postgresql):
        rows = contents(url, "hourly")
        assert {(str(start)[11:13], action): n for action, n, _, start in rows} == expected
        assert {str(end)[:13] for _, _, end, _ in rows} == {f"2026-01-01 {hour:02}" for hour in (1, 2, 3)}
    with connected(postgresql) as connection:
        types = {column["name"]: str(column["type"]) for column in sa.inspect(connection).get_columns("hourly")}
    assert types == {"action": "TEXT", "n": "BIGINT", "window_start": "TIMESTAMP", "window_end": "TIMESTAMP"}


def script() -> hr.TestStream:
    def wins(*results: tuple[str, int, int]) -> list[hr.TimestampedValue]:
        return [hr.TimestampedValue((team, points), time) for team, points, time in results]

    return (
        hr.TestStream()
        .add(wins(("red", 5, 1), ("blue", 2, 2)))
        .add(wins(("red", 3, 4), ("red", 1, 61)))
        .advance_watermark(60)
        .add(wins(("blue", 4, 9)))
        .finish()
    )


class Tables:
    """Runs a stream that retracts, into tables of all modes; it can be run again on the same checkpoint."""

    def __init__(self, spark: SparkSession, url: str, checkpoint: str) -> None:
        self.url, self.checkpoint = url, checkpoint
        self.pipeline = p = hr.Pipeline(spark=spark)
        trigger = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
        sums = (
            p
            | script()
            | hr.WindowInto(hr.FixedWindows(60), trigger=trigger, accumulation="retracting", allowed_lateness=3600)
            | "sums" >> hr.CombinePerKey(sum)
        )
        names = ["team", "points"]
        sums | "log" >> hr.WriteTable(url, "log", columns=names)
        sums | "now" >> hr.WriteTable(url, "now", columns=names, key=["team", "window_start"], mode="upsert")
        (
            sums
            | "bag" >> hr.MapTuple(Wins).with_output_types(Wins)
            | "bag table" >> hr.WriteTable(url, "bag", mode="retract")
        )

    def run(self) -> str:
        return self.pipeline.run(checkpoint=self.checkpoint).wait().state

    def check(self) -> None:
        assert {(team, str(start)[11:19]): n for n, team, _, start in contents(self.url, "now")} == {
            ("red", "00:00:00"): 8,
            ("red", "00:01:00"): 1,
            ("blue", "00:00:00"): 6,
        }
        assert contents(self.url, "bag") == Counter([(8, "red"), (1, "red"), (6, "blue")])
        log = contents(self.url, "log")
        net: Counter[tuple[int, str]] = Counter()
        for (points, sign, team), times in log.items():
            net[points, team] += sign * times
        assert +net == contents(self.url, "bag")
        assert log[5, -1, "red"] == log[5, 1, "red"] == 1


def test_a_stream_that_crashes_around_its_transactions_leaves_what_an_undisturbed_one_does(
    spark: SparkSession, tmp_path: Path, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(spark, postgresql, str(tmp_path / "checkpoint"))
    crashes = {("before", "log", 0), ("after", "now", 1), ("within", "bag table", 2), ("after", "bag table", 3)}
    write_together, write_table = tablewriter.write_together, TableWriter._write

    def together(batches: list[tablewriter.TableBatch], batch_id: int) -> None:
        for each in batches:
            reach("before", each.writer.node.label, batch_id)
        write_together(batches, batch_id)
        for each in batches:
            reach("after", each.writer.node.label, batch_id)

    def write(self: TableWriter, connection: Any, elements: Any, batch_id: int, expired: Any) -> Any:
        written = write_table(self, connection, elements, batch_id, expired)
        reach("within", self.node.label, batch_id)  # the others have written, and nothing is committed
        return written

    def reach(*point: Any) -> None:
        if point in crashes:
            crashes.discard(point)
            raise RuntimeError(f"crashed {point}")

    monkeypatch.setattr(tablewriter, "write_together", together)
    monkeypatch.setattr(TableWriter, "_write", write)
    failures = 0
    while failures < 5:
        try:
            assert tables.run() == "done"
            break
        except Exception as error:
            assert "crashed" in str(error)
            failures += 1
    assert failures == 4 and not crashes
    tables.check()


def test_a_stream_whose_database_refuses_a_batch_fails_with_the_reason_and_goes_on(
    spark: SparkSession, tmp_path: Path, sqlite: str
) -> None:
    execute(
        sqlite, "CREATE TABLE log (team TEXT, points BIGINT CHECK (points < 6), sign BIGINT, window_start TIMESTAMP)"
    )
    tables = Tables(spark, sqlite, str(tmp_path / "checkpoint"))
    with pytest.raises(TransformError, match=r"'log' failed: .*CHECK constraint failed: points < 6"):
        tables.run()
    assert contents(sqlite, "log").total() == 2  # the batch before is there, the one that failed is not
    execute(sqlite, "DROP TABLE log", "CREATE TABLE log (team TEXT, points BIGINT, sign BIGINT)")
    execute(sqlite, "INSERT INTO log VALUES ('red', 5, 1), ('blue', 2, 1)")
    assert tables.run() == "done"
    tables.check()


def test_a_table_that_does_not_fit_is_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path, sqlite: str
) -> None:
    execute(sqlite, "CREATE TABLE wins (team TEXT, score BIGINT)")
    for stream in (False, True):
        p = hr.Pipeline(spark=spark)
        wins = p | hr.Create([("red", 1)]) | hr.Select(team="_1", points="_2")
        wins | "first" >> hr.WriteText(f"{tmp_path}/{stream}")
        wins | "table" >> hr.WriteTable(sqlite, "wins")
        with pytest.raises(PipelineError, match=r"'table' .*: the table 'wins' has no column 'points'"):
            p.run(stream=stream).wait()
        assert stream is False or not (tmp_path / f"{stream}").exists()
