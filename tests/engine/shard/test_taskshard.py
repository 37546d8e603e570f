"""Tasks as shards: rows get to the task they name, and what a worker remembers of a task changes nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

import headrace as hr
from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.plan.lowering import lower
from headrace.engine.shard.reports import ClockReport
from headrace.engine.shard.taskshard import TaskBatches, TaskWork, ToTasks, task_blocks
from headrace.engine.shard.wire import pack, unpack
from headrace.engine.state import statecells
from headrace.engine.stream import shards
from headrace.engine.stream.shards import ShardCache, ShardOperator, ShardSpec
from headrace.engine.worker.blame import WorkerFailure
from headrace.engine.worker.bundles import Bundle
from headrace.log import Log, Producer
from headrace.model.errors import PipelineError
from headrace.model.tasks import TaskOutput, Tasks
from tests.engine.stream.test_shards import DEST, Store


class Counting:
    """Counts words, a block for each first letter, and forgets the letters of words that begin with a minus."""

    def __init__(self, number: int, of: int) -> None:
        self.number, self.of = number, of
        self.counted: dict[str, Counter[str]] = {}
        self.touched: set[str] = set()

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        words = [word for rows in batches for word in rows.column("word").to_pylist()]
        for word in words:
            letter = word.lstrip("-")[0]
            self.touched.add(letter)
            if word[0] == "-":
                self.counted.pop(letter, None)
            else:
                self.counted.setdefault(letter, Counter())[word] += 1
        kept = [word for word in words if word in self.counted.get(word[0], ())]
        counts = [self.counted[word[0]][word] for word in kept]
        columns = {"word": pa.array(kept, pa.string()), "count": counts}
        given = pa.record_batch({**columns, "by": pa.array([self.number] * len(kept), pa.int32())})
        for task, part in shared_out(given, self.of):
            yield "counted", task, part

    def changes(self) -> list[bytes]:
        touched, self.touched = self.touched, set()
        return [self._block(letter) for letter in sorted(touched)]

    def part(self, low: int, high: int) -> list[bytes]:
        return [self._block(letter) for letter in self.counted if low <= mixed_up(letter) < high]

    def _block(self, letter: str) -> bytes:
        return json.dumps([letter, self.counted.get(letter)]).encode()

    def counts(self) -> dict[str, float]:
        return {"words": sum(map(Counter.total, self.counted.values()))}

    def load(self, blocks: Sequence[bytes]) -> None:
        for block in blocks:
            letter, counts = json.loads(block)
            if counts is None:
                self.counted.pop(letter, None)
            else:
                self.counted[letter] = Counter(counts)


def mixed_up(letter: str) -> int:
    return ord(letter) * 0x9E3779B97F4A7C15 % 2**64


def shared_out(rows: pa.RecordBatch, tasks: int) -> list[tuple[int, pa.RecordBatch]]:
    """Rows by the task that their words belong to."""
    owner = [sum(map(ord, word)) % tasks for word in rows.column("word").to_pylist()]
    parts = [(task, rows.filter(pa.array([each == task for each in owner], pa.bool_()))) for task in range(tasks)]
    return [(task, part) for task, part in parts if part.num_rows]


def rows(words: list[str]) -> pa.RecordBatch:
    return pa.record_batch({"word": pa.array(words, pa.string())})


def sent(words: list[str]) -> pa.RecordBatch:
    """The rows as they come to the shard."""
    return pa.record_batch({"task": [0], "batch": [arrow_bytes(rows(words))]})


@dataclass
class Batch:
    """A micro-batch, the worker that does it, and attempts before it that came to nothing, on other words."""

    words: list[str]
    worker: int
    failed: list[tuple[int, list[str]]]


some_words = st.lists(st.text("abc", min_size=1, max_size=3) | st.sampled_from(["-a", "-b"]), max_size=6)
workers = st.integers(0, 2)
scripts = st.lists(
    st.builds(Batch, some_words, workers, st.lists(st.tuples(workers, some_words), max_size=2)), max_size=12
)


@given(scripts, st.sampled_from([0, 300, 1 << 30]))
def test_what_a_worker_remembers_changes_nothing(script: list[Batch], worth: int) -> None:
    """Whichever worker does a batch, whatever it remembers of which attempts, and however the state is written."""
    work = TaskWork(Counting, 1)
    naive = Counting(0, 1)
    store, memories = Store(), [ShardCache() for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statecells, "_WORTH", worth)

        def done(at: Store, worker: int, words: list[str]) -> list[dict[str, Any]]:
            patch.setattr(shards, "_cache", memories[worker])
            made = ShardOperator("stream", {DEST: ShardSpec("0/0", "count", work, ("events",))}, {})
            made.init(at)  # type: ignore[arg-type]
            report = ClockReport(now=0, lows={"events": 0})
            body = pack(report.dump(), sent(words) if words else None)
            (row,) = made.handleInputRows((DEST,), iter([Row(dest=DEST, body=body)]), None)
            return [row for _, bundle in work.bundles(unpack(row.body)[1]) for row in bundle.elements[0][1].to_pylist()]

        for batch in script:
            for worker, words in batch.failed:
                done(store.copy(), worker, words)
            expected = [each.to_pylist() for _, _, each in naive.run([rows(batch.words)], 0)]
            assert done(store, batch.worker, batch.words) == [row for part in expected for row in part]


def test_a_step_stores_the_blocks_that_changed_and_no_others() -> None:
    shard = TaskWork(Counting, 1).processor()
    shard.step(sent([f"{letter}{number}" for letter in "abcdefghij" for number in range(1000)]))
    assert len(shard.changes()) == 1 + 10
    shard.step(sent(["a0"]))
    assert len(shard.changes()) == 1 + 1
    shard.step(None)
    assert len(shard.changes()) == 1


def test_a_task_without_state_begins_with_what_it_is_given_and_stores_all_of_it() -> None:
    earlier = TaskWork(Counting, 1).processor()
    earlier.step(sent(["apple", "bee"]))
    blocks = task_blocks(earlier.dump())
    shard = TaskWork(Counting, 1, initial=lambda number: blocks).processor()
    shard.step(sent(["apple"]))
    stored = shard.changes()
    again = TaskWork(Counting, 1, initial=lambda number: blocks).processor()
    again.load(stored)
    again.step(sent(["apple"]))
    assert again.task.counts() == {"words": 4}
    assert len(again.changes()) == 1 + 1


@given(st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=6))
def test_batches_get_to_the_task_that_they_name_in_their_order(bundles: list[list[int]]) -> None:
    """Also if they have different columns."""
    dests = (10, 11, 12, 13)
    output = ToTasks(TaskBatches("t", 4), dests, frozenset())
    numbers = iter(range(1000))
    came: dict[int, list[int]] = {dest: [] for dest in dests}
    expected: dict[int, list[int]] = {dest: [] for dest in dests}
    for tasks in bundles:
        named = list(zip(tasks, numbers, strict=False))
        for task, number in named:
            expected[dests[task]].append(number)
        elements = [(task, pa.record_batch({f"n{number % 2}": [number]})) for task, number in named]
        assert list(output.add(Bundle(elements))) == []
    for flight in output.finish():
        for dest, body in zip(flight["dest"].to_pylist(), flight["body"].to_pylist(), strict=True):
            _, held = unpack(body)
            for batch in held["batch"].to_pylist() if held.num_rows else []:
                came[dest] += pa.ipc.open_stream(batch).read_all().column(0).to_pylist()
    assert came == expected


@pytest.mark.parametrize(
    "wrong", [pa.record_batch({"n": [1]}), (2, pa.record_batch({"n": [1]})), (0, [1]), ("0", None)]
)
def test_what_is_for_no_task_is_refused(wrong: Any) -> None:
    with pytest.raises(WorkerFailure, match="pairs of a task, from 0 to 1, and an Arrow batch"):
        list(TaskBatches("t", 2).add(Bundle([wrong])))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"task": 5, "tasks": 1}, "makes a task"),
        ({"task": Counting, "tasks": 0}, "at least 1"),
        ({"task": Counting, "tasks": 1, "outputs": ("a", "a")}, "different tags"),
    ],
)
def test_what_tasks_are_made_of_is_checked(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        Tasks(**wrong)


def test_a_batch_has_no_tasks() -> None:
    p = hr.Pipeline()
    p | hr.Create([(0, rows(["a"]))]) | Tasks(Counting, tasks=1, outputs=("counted",)) | hr.Collect()
    with pytest.raises(PipelineError, match="tasks are for streams"):
        p.run()


def test_tasks_are_a_level_behind_the_farthest_of_their_inputs() -> None:
    p = hr.Pipeline()
    source = p | hr.TestStream().add([(0, rows(["a"]))]).finish()
    first = source | "first" >> Tasks(Counting, tasks=3, outputs=("counted",))
    second = (source, first) | "second" >> Tasks(Counting, tasks=2, outputs=("counted",))
    second | hr.Collect()
    line = lower(p.graph(), shards=4, partitions=2)
    assert [(each.label, each.level, len(each.dests)) for each in line.exchanges] == [("first", 1, 3), ("second", 2, 2)]
    assert line.exchanges[1].upstream == ("TestStream", "0/0", "0/1", "0/2")


def test_tasks_keep_their_state_from_run_to_run(spark: SparkSession, tmp_path: Path) -> None:
    """Two levels, and rows that skip the first: each task counts on where it was, also after a stop."""
    topic = Log(tmp_path / "log").create("words", values="json")
    by_batch: dict[int, list[tuple[int, str, int]]] = {}
    told: list[float] = []

    def deliver(elements: list[Any], batch: int) -> None:
        # A batch that a stop came in between is run again.
        rows = [row for each in elements for row in each.value[1].to_pylist()]
        by_batch[batch] = [(row["by"], row["word"], row["count"]) for row in rows]

    def given() -> list[tuple[int, str, int]]:
        return [row for rows in by_batch.values() for row in rows]

    def run_until(count: int) -> None:
        p = hr.Pipeline(spark=spark)
        read = (
            p
            | hr.ReadTopic("words", log=str(tmp_path / "log"))
            | "rows" >> hr.FlatMap(lambda words: shared_out(rows(words), 3))
        )
        first = read | "first" >> Tasks(Counting, tasks=3, outputs=("counted",))
        again = first | "words" >> hr.MapTuple(lambda task, batch: (task, batch.select(["word"])))
        second = (read, again) | "second" >> Tasks(Counting, tasks=3, outputs=("counted",))
        second | hr.ForEachBatch(deliver)
        handle = p.run(checkpoint=str(tmp_path / "checkpoint"), trigger="100 ms")
        deadline = time.monotonic() + 120
        while len(given()) < count and time.monotonic() < deadline:
            assert handle.status().state == "running", handle.wait()
            time.sleep(0.05)
        told.append(sum(each["words"] for each in handle.status().exchanges["first"].counts.values()))
        handle.stop()

    with Producer(topic) as producer:
        producer.send(["to", "be", "or"])
        producer.send(["not", "to", "be"])
    run_until(12)
    with Producer(topic) as producer:
        producer.send(["to", "see"])
    run_until(16)
    out = given()
    # Every word comes twice to the second level: by itself, and counted by the first.
    counts = Counter(word for _, word, _ in out)
    assert counts == {"to": 6, "be": 4, "or": 2, "not": 2, "see": 2}
    assert told == [6, 8]
    assert {by for by, word, _ in out if by != sum(map(ord, word)) % 3} == set()
    # A task tells how often it has seen a word at the end of a micro-batch: the last count is of both runs.
    assert {word: max(count for _, each, count in out if each == word) for word in counts} == counts
