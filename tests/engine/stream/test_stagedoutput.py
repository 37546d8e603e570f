"""Output that is too much to travel to the driver: tasks put it into files, and it is written once all the same."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.engine.stream import delivery
from headrace.log import Log
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.edges.kafka import Broker

LINES, EACH = 8, 15_000
ROWS = LINES * EACH


def numbers(line: str) -> list[tuple[int, str]]:
    return [(n, f"row {n} of many that are as long as this one is") for n in range(int(line), ROWS, LINES)]


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines.txt").write_text("".join(f"{line}\n" for line in range(LINES)))
    return str(tmp_path / "in")


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of staged files there were, each time when they were removed."""
    found: list[int] = []
    remove = delivery.remove_staged

    def counting(folder: str) -> None:
        found.append(len(list(Path(folder).glob("*"))))
        remove(folder)

    monkeypatch.setattr(delivery, "remove_staged", counting)
    return found


def made(p: hr.Pipeline, source: str) -> Any:
    return p | hr.ReadText(source) | hr.FlatMap(numbers).with_output_types(tuple[int, str])


@pytest.mark.slow("a micro-batch of many rows, twice")
def test_a_large_batch_is_written_once_to_tables_and_topics(
    spark: SparkSession, source: str, removed: list[int], tmp_path: Path
) -> None:
    """Also when it comes again after a crash; a small batch needs no files."""
    url = f"sqlite:///{tmp_path}/tables"
    log = Log(tmp_path / "log")
    log.create("copies")

    def run(check: Any) -> None:
        p = hr.Pipeline(spark=spark)
        rows = made(p, source)
        rows | "all" >> hr.WriteTable(url, "every", columns=["n", "text"])
        latest = rows | hr.Map(lambda pair: (pair[0] % 1000, *pair)).with_output_types(tuple[int, int, str])
        latest | "latest" >> hr.WriteTable(url, "latest", columns=["k", "n", "text"], key="k", mode="upsert")
        rows | hr.Map(lambda pair: pair[1]).with_output_types(str) | hr.WriteTopic("copies", log=tmp_path / "log")
        small = rows | hr.Filter(lambda pair: pair[0] < 10)
        small | "few" >> hr.WriteTable(url, "few", columns=["n", "text"])
        small | "check" >> hr.ForEachBatch(lambda elements, batch: check(elements))
        p.run(stream=True, checkpoint=str(tmp_path / "checkpoint")).wait()

    def crash(elements: Any) -> None:
        raise RuntimeError("crash")

    with pytest.raises(hr.TransformError, match="crash"):
        run(crash)
    seen: list[int] = []
    run(lambda elements: seen.append(len(elements)))
    assert seen == [10]
    with closing(sqlite3.connect(tmp_path / "tables")) as tables:
        (every,) = tables.execute("SELECT count(*), count(DISTINCT n), sum(n) FROM every")
        (latest,) = tables.execute("SELECT count(*), count(DISTINCT k), min(n % 1000 = k) FROM latest")
        assert every == (ROWS, ROWS, ROWS * (ROWS - 1) // 2)
        assert latest == (1000, 1000, 1)
        assert tables.execute("SELECT count(*) FROM few").fetchone() == (10,)
    assert sum(1 for _ in log.topic("copies").read(0)) == ROWS
    assert removed[0] == 0 and max(removed) >= 3  # nothing at first; then files of three sinks
    assert not (tmp_path / "checkpoint" / "control" / "staged").exists()


@only_full("the same batch goes to tables and to an embedded topic in every run")
@pytest.mark.slow("a micro-batch of many rows to Kafka")
def test_a_large_batch_is_one_transaction_of_kafka(
    spark: SparkSession, broker: Broker, source: str, removed: list[int], tmp_path: Path
) -> None:
    sink = broker.create("large", partitions=2)
    p = hr.Pipeline(spark=spark)
    made(p, source) | hr.Map(lambda pair: pair[1]).with_output_types(str) | hr.WriteTopic(sink)
    p.run(stream=True, checkpoint=str(tmp_path / "checkpoint")).wait()
    values = [message.value() for message in broker.contents("large")]
    assert len(values) == len(set(values)) == ROWS
    assert max(removed) >= 1
