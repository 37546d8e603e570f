"""Streams that are aborted at commit boundaries, dozens of times each, and give what an undisturbed run gives.

A first run notes every boundary it passes. A second one, on a checkpoint of its own, is aborted at a seeded sample of
them, at each once, and started again after each: it must give the same elements in the same batches to every sink.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import naiad
from headrace.engine.plan.lowering import lower
from headrace.engine.spark.files import Folder
from headrace.engine.stream import delivery, writtenfiles
from headrace.engine.stream.columnstream import is_columnar
from headrace.local.querytable import QueryTable
from headrace.model.collected import Collected
from headrace.model.matching import MatchQueries, Parameter
from headrace.model.sinks import WindowedValue
from tests.scale import FULL, only_full

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Abort(Exception):
    """The injected fault; its text tells where."""

    def __init__(self, point: str) -> None:
        super().__init__(f"aborted at <{point}>")


UNLOGGED = "before it is logged"
"""A batch of which only its sources know yet. The stream is aborted a little later, and the log of it taken away."""


class Faults:
    """The injector: notes the points a stream passes, and aborts it at those that are planned, at each once.

    A point is a place and a batch, such as "after counts in batch 2". Workers do not know the batch they are in: the
    driver arms a place for them, with a file, when a batch begins, and looks whether they came by when it ends.
    """

    def __init__(self, folder: Path, workers: tuple[str, ...]) -> None:
        self.folder, self.workers = folder, workers
        self.planned: set[str] = set()
        self.passed: list[str] = []
        self.batch = -1

    def reach(self, place: str) -> None:
        """The driver is at a place."""
        point = f"{place} in batch {self.batch}"
        self.passed.append(point)
        if point in self.planned:
            self.planned.discard(point)
            raise Abort(point)

    def begin(self, batch: int) -> None:
        self.batch = batch
        for place in self.workers:
            (self.folder / f"passed {place}").unlink(missing_ok=True)
        self.reach(UNLOGGED)
        self.reach("begin")
        for place in self.workers:
            point = f"{place} in batch {batch}"
            if point in self.planned:
                self.planned.discard(point)
                (self.folder / f"armed {place}").write_text(point)
                break  # of two that fail at once, Spark tells only one

    def end(self) -> None:
        for place in self.workers:
            if (self.folder / f"passed {place}").exists():
                self.passed.append(f"{place} in batch {self.batch}")
        self.reach("end")

    def visit(self, place: str) -> None:
        """A worker is at a place. Of several that find it armed, one takes the file away and fails."""
        (self.folder / f"passed {place}").touch()
        armed = self.folder / f"armed {place}"
        try:
            point = armed.read_text()
            armed.unlink()
        except FileNotFoundError:
            return
        raise Abort(point)


class Visiting:
    """A function for Map that hands elements on, and tells the faults' folder when it sees any."""

    def __init__(self, folder: Path, place: str) -> None:
        self.folder, self.place = folder, place

    def __call__(self, element: Any) -> Any:
        Faults(self.folder, ()).visit(self.place)
        return element


class VisitingSum(hr.CombineFn):
    """A sum that is at its place when a shard fires panes."""

    def __init__(self, folder: Path, place: str) -> None:
        self.visit = Visiting(folder, place)

    def zero(self) -> int:
        return 0

    def add(self, acc: int, value: int) -> int:
        return acc + value

    def merge(self, a: int, b: int) -> int:
        return a + b

    def finish(self, acc: int) -> int:
        return int(self.visit(acc))

    def __repr__(self) -> str:
        return "VisitingSum()"


class Universe:
    """A pipeline with its sinks and its checkpoint, which can be run again and again."""

    workers: tuple[str, ...]
    spared: tuple[str, ...] = ()  # beginnings of points at which it is not aborted
    options: Mapping[str, Any] = MappingProxyType({})  # of a run

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.faults = Faults(folder, self.workers)
        self.effects: dict[str, dict[int, Counter[str]]] = {}
        self.files: dict[str, Path] = {}
        self.collected: dict[str, Collected] = {}
        self.pipeline = hr.Pipeline(spark=spark)
        self.build(self.pipeline)

    def build(self, p: hr.Pipeline) -> None:
        raise NotImplementedError

    def visiting(self, place: str) -> hr.PTransform:
        return f"visit {place}" >> hr.Map(Visiting(self.folder, place))

    def effect(self, name: str) -> hr.PTransform:
        """A sink whose effects are told apart by batch id, as those of an outside system would be."""
        written = self.effects.setdefault(name, {})

        def write(elements: list[WindowedValue], batch: int) -> None:
            self.faults.reach(f"before {name}")
            shown = Counter(map(repr, elements))
            assert written.setdefault(batch, shown) == shown, f"batch {batch} came again with other elements"
            self.faults.reach(f"after {name}")

        return name >> hr.ForEachBatch(write)

    def text(self, name: str) -> hr.PTransform:
        self.files[name] = self.folder / name
        return name >> hr.WriteText(str(self.files[name]))

    def json(self, name: str) -> hr.PTransform:
        self.files[name] = self.folder / name
        return name >> hr.WriteJson(str(self.files[name]))

    def avro(self, name: str) -> hr.PTransform:
        self.files[name] = self.folder / name
        return name >> hr.WriteAvro(str(self.files[name]))

    def parquet(self, name: str) -> hr.PTransform:
        self.files[name] = self.folder / name
        return name >> hr.WriteParquet(str(self.files[name]))

    def collect(self, name: str, pc: hr.PCollection) -> None:
        self.collected[name] = pc | name >> hr.Collect()

    def run(self) -> list[str]:
        """Runs the stream, and again after every abort, to its end; returns where it was aborted."""
        aborted = []
        while True:
            try:
                handle = self.pipeline.run(checkpoint=str(self.folder / "checkpoint"), **self.options)
                assert handle.wait().state == "done"
                return aborted
            except Exception as error:
                told = re.search("aborted at <(.*?)>", str(error))
                if told is None:
                    raise
                aborted.append(told[1])
                if told[1].startswith(UNLOGGED):
                    self._unlog(self.faults.batch)

    def _unlog(self, batch: int) -> None:
        """Leaves a checkpoint as it was when only the sources knew of this batch."""
        checkpoint = self.folder / "checkpoint/spark"
        for name in (f"{batch}", f".{batch}.crc"):
            (checkpoint / "offsets" / name).unlink()
        if batch == 0:
            shutil.rmtree(checkpoint / "state", ignore_errors=True)  # planning made it

    def points(self) -> list[str]:
        """The points that were passed, and at which it may be aborted."""
        return [point for point in self.faults.passed if not point.startswith(self.spared)]

    def one_of_each_kind(self, tried: set[str]) -> list[str]:
        """Of the points that were passed, one of each kind, in whichever batch, but for the kinds that were tried.

        Sinks of a kind are one.
        """
        kinds: dict[str, list[str]] = {}
        for point in self.points():
            place = point.rpartition(" in batch ")[0]
            for kind, names in {"files": self.files, "function": self.effects, "list": self.collected}.items():
                place = next((place.removesuffix(name) + kind for name in names if place.endswith(f" {name}")), place)
            kinds.setdefault(place, []).append(point)
        rng = random.Random(1)
        chosen = [rng.choice(points) for kind, points in kinds.items() if kind not in tried]
        tried.update(kinds)
        return chosen

    def output(self) -> dict[str, dict[Any, Counter[str]]]:
        """What every sink has, by batch: finer than multisets of all elements, and the engine keeps to it."""
        output: dict[str, dict[Any, Counter[str]]] = {**self.effects}
        for name, path in self.files.items():
            output[name] = {
                batch.name: Counter(line for part in batch.glob("part-*") for line in lines_of(part))
                for batch in path.iterdir()
            }
        for name, collected in self.collected.items():
            assert Counter(map(repr, collected.windowed)) == Counter(
                repr(each) for batch in collected.batches.values() for each in batch
            )
            output[name] = {number: Counter(map(repr, batch)) for number, batch in collected.batches.items()}
        return output


def lines_of(part: Path) -> list[str]:
    """The lines of a file of text, or the rows of one of Avro or Parquet."""
    if part.suffix == ".parquet":
        return [repr(row) for row in pq.read_table(part).to_pylist()]
    if part.suffix != ".avro":
        return part.read_text().splitlines()
    with part.open("rb") as file:
        return [repr(row) for row in fastavro.reader(file)]


def timed(*triples: tuple[str, int, int]) -> list[hr.TimestampedValue]:
    return [hr.TimestampedValue((key, value), time) for key, value, time in triples]


EARLY_AND_LATE = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))


class Stateless(Universe):
    """No grouping: only the sinks' boundaries, but those of three directories of files, a function and a list."""

    workers = ("source",)

    def build(self, p: hr.Pipeline) -> None:
        script = hr.TestStream().add(["a", "b", "a"]).add(["c"]).add(["d", "d"])
        words = p | script | self.visiting("source")
        words | self.text("plain")
        words | self.effect("function")
        self.collect("list", words)
        upper = words | "upper" >> hr.Map(str.upper).with_output_types(str)
        upper | self.avro("upper case")
        upper | self.parquet("parquet")


class Columns(Universe):
    """Columns that Python never sees, in two directories of files."""

    workers = ()
    options = MappingProxyType({"stream": True, "max_files_per_batch": 1})

    def build(self, p: hr.Pipeline) -> None:
        (self.folder / "in").mkdir()
        for number, visits in enumerate([[("a", 1), ("b", 2)], [("a", 3)], [("c", 4), ("c", 4)]]):
            lines = [json.dumps({"user": user, "n": n}) for user, n in visits]
            path = self.folder / "in" / f"{number}.json"
            path.write_text("\n".join([*lines, "no record"]))
            os.utime(path, (number, number))  # or files of one moment might come in any order
        rows = p | hr.ReadJson(str(self.folder / "in"), schema="user string, n long")
        rows | self.json("plain")
        rows | hr.Where("n > 1") | hr.Select(key="upper(user)", twice="n * 2") | self.json("upper case")
        assert is_columnar(lower(p.graph(), shards=1, partitions=1))


class Queries(Universe):
    """Rows that match queries, of which some come and some go while batches are delivered."""

    workers = ()
    spared = (UNLOGGED,)  # a query begins behind the batches that are logged, and a log never loses one
    options = MappingProxyType({"stream": True, "max_files_per_batch": 1})

    def build(self, p: hr.Pipeline) -> None:
        (self.folder / "in").mkdir()
        for number in range(4):
            lines = [json.dumps({"user": user, "n": 10**number}) for user in "aabc"]
            path = self.folder / "in" / f"{number}.json"
            path.write_text("\n".join(lines))
            os.utime(path, (number, number))
        table = QueryTable(self.folder / "queries")
        first = table.add([["a"]], "a", lambda: 0)
        changed: set[int] = set()

        def change(elements: list[WindowedValue], batch: int) -> None:
            if batch not in changed:
                changed.add(batch)
                table.add([["b", "c"]], f"since {batch}", self._next_batch)
                if batch == 1:
                    table.end(first, self._next_batch)
            self.faults.reach("after a change of queries")

        rows = p | hr.ReadJson(str(self.folder / "in"), schema="user string, n long")
        query = MatchQueries(str(table.path), [Parameter("user", "in")], ["user", "n"], "query")
        always = hr.WindowInto(hr.GlobalWindows(), trigger=hr.Always(), accumulation="accumulating")
        matched = rows | always | query
        matched | self.effect("matched")
        matched | "change" >> hr.ForEachBatch(change)
        matched | hr.GroupBy("query", "user").aggregate(total=hr.sum("n")) | self.effect("sums")

    def _next_batch(self) -> int:
        log = self.folder / "checkpoint/spark/offsets"
        return 1 + max(int(entry.name) for entry in log.iterdir() if entry.name.isdecimal())


class OneLevel(Universe):
    """Sessions that merge and take panes back, and windows with late data, side by side."""

    workers = ("source", "shard", "pane")

    def build(self, p: hr.Pipeline) -> None:
        script = (
            hr.TestStream()
            .add(timed(("a", 1, 1), ("a", 2, 8), ("b", 3, 2)))
            .advance_watermark(7)
            .add(timed(("a", 4, 5), ("b", 5, 9), ("c", 6, 6)))
            .finish()
        )
        events = p | script | self.visiting("source")
        retracting = {"trigger": EARLY_AND_LATE, "accumulation": "retracting", "allowed_lateness": 60}
        sessions = events | "sessions" >> hr.WindowInto(hr.Sessions(4), **retracting)
        sums = sessions | "sums" >> hr.CombinePerKey(VisitingSum(self.folder, "shard"))
        fixed = events | "fixed" >> hr.WindowInto(hr.FixedWindows(5), trigger=EARLY_AND_LATE, allowed_lateness=60)
        counts = fixed | "counts" >> hr.Count.per_key() | self.visiting("pane")
        counts | self.text("files")
        sums | self.effect("function")
        self.collect("list", counts)


class TwoLevels(Universe):
    """A sum of sums under retractions."""

    workers = ("source", "shard", "pane", "second shard")

    def build(self, p: hr.Pipeline) -> None:
        script = (
            hr.TestStream()
            .add(timed(("a", 1, 1), ("b", 2, 2)))
            .add(timed(("a", 4, 4), ("a", 5, 11)))
            .advance_watermark(10)
            .add(timed(("b", 6, 5), ("c", 7, 12)))
            .finish()
        )
        events = p | script | self.visiting("source")
        windows = hr.WindowInto(
            hr.FixedWindows(10), trigger=EARLY_AND_LATE, accumulation="retracting", allowed_lateness="1 minute"
        )
        sums = events | windows | "sums" >> hr.CombinePerKey(VisitingSum(self.folder, "shard")) | self.visiting("pane")
        total = sums | hr.Values() | "total" >> hr.CombineGlobally(VisitingSum(self.folder, "second shard"))
        sums | self.text("files")
        total | self.effect("totals")
        sums | self.effect("sums out")


class VisitingVertex(naiad.Vertex):
    """Sends messages round three times, and when an epoch is over how many it got since it began."""

    outputs = ("again", "totals")

    def __init__(self, folder: Path) -> None:
        self.folder, self.total = folder, 0

    def on_recv_new(self, message: Any, time: tuple[int, ...]) -> None:
        Visiting(self.folder, "vertex")(message)
        self.total += 1
        self.notify_at((time[0], 3))
        if time[1] < 3:
            self.send(message, time)

    on_recv_again = on_recv_new

    def on_notify(self, time: tuple[int, ...]) -> None:
        self.send_by("totals", self.total, time)


class Loops(Universe):
    """Loops in each micro-batch: connected components of a graph whose edges come and go, and vertices."""

    workers = ("source", "loop", "vertex", "change")
    shards = 1

    def build(self, p: hr.Pipeline) -> None:
        script = (
            hr.TestStream()
            .add([("a", "b"), ("b", "c"), ("d", "e")])
            .add([("c", "d"), ("x", "y")])
            .add([hr.Change(("b", "c"), -1), hr.Change(("x", "y"), -1)])
            .add([("b", "c")])
            .finish()
        )
        read = p | script | self.visiting("source")
        edges = hr.collection(read)
        both = edges.concat(edges.map(lambda edge: (edge[1], edge[0])))
        nodes = both.map(lambda edge: (edge[0], edge[0])).distinct()
        visit = Visiting(self.folder, "loop")

        def spread(labels: hr.Collection) -> hr.Collection:
            return labels.map(visit).join(both, lambda _, label, other: (other, label)).concat(nodes).reduce(min)

        changes = hr.changes(hr.iterate(nodes, spread), shards=self.shards) | self.visiting("change")
        changes | self.effect("labels")
        self.collect("list", changes)
        graph = naiad.Graph()
        loop = graph.loop()
        again = loop.feedback()
        inputs = {"new": loop.enter(graph.input("edges", read)).by(repr), "again": again.by(repr)}
        made = graph.stage(partial(VisitingVertex, self.folder), inputs, vertices=2, name="visiting")
        again.connect(made)
        naiad.messages(loop.leave(made["totals"]), shards=self.shards) | self.effect("totals")


class ShardedLoops(Loops):
    """The same in two shards: a round is a micro-batch, and what goes round is in the checkpoint."""

    shards = 2


class Boundaries:
    """Puts the injector of the stream that runs into the engine, around whatever is written by batch."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.faults: Faults
        deliver, rename = delivery.Delivery.__call__, Folder.rename
        write, place = delivery.Delivery._write, delivery.Delivery._place

        def delivering(delivery: delivery.Delivery, frame: DataFrame, batch: int) -> None:
            self.faults.begin(batch)
            deliver(delivery, frame, batch)
            self.faults.end()

        def writing(delivery: delivery.Delivery, outlet: Any, *rest: Any) -> None:
            name = Path(outlet.node.transform.path).name
            self._around(name, lambda: write(delivery, outlet, *rest))

        def placing(delivery: delivery.Delivery, output: Any, *rest: Any) -> None:
            name = output.columns.label
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(writtenfiles, "seal_local", partial(sealing, name))
                self._around(f"the place of workers' {name}", lambda: place(delivery, output, *rest))

        seal = writtenfiles.seal_local

        def sealing(name: str, *args: Any, **kwargs: Any) -> None:
            seal(*args, **kwargs)
            self.faults.reach(f"before the rename of workers' {name}")

        def renaming(new: Folder, to: Folder) -> None:
            self.faults.reach(f"before the rename to {Path(str(to)).parent.name}")
            rename(new, to)

        taken = Collected.take

        def taking(collected: Collected, batch: int, elements: list[WindowedValue]) -> None:
            self._around(collected.label, lambda: taken(collected, batch, elements))

        patch.setattr(delivery.Delivery, "__call__", delivering)
        patch.setattr(delivery.Delivery, "_write", writing)
        patch.setattr(delivery.Delivery, "_place", placing)
        patch.setattr(Folder, "rename", renaming)
        patch.setattr(Collected, "take", taking)

    def _around(self, name: str, write: Callable[[], None]) -> None:
        self.faults.reach(f"before {name}")
        write()
        self.faults.reach(f"after {name}")


@pytest.fixture(scope="module")
def tried() -> set[str]:
    """The kinds of points at which a pipeline of this module was aborted."""
    return set()


@pytest.fixture
def boundaries(monkeypatch: pytest.MonkeyPatch) -> Boundaries:
    return Boundaries(monkeypatch)


# A hundred in all: of the first, all boundaries there are; of the others, a sample that fits the time.
# Without FULL, one of each kind.
@pytest.mark.slow("a stream is restarted at every abort")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("universe", "count"), [(Stateless, 51), (OneLevel, 30), (TwoLevels, 19)])
def test_aborts_at_commit_boundaries_leave_no_trace(
    universe: type[Universe],
    count: int,
    spark: SparkSession,
    tmp_path: Path,
    boundaries: Boundaries,
    tried: set[str],
) -> None:
    check_aborts(universe, count, spark, tmp_path, boundaries, tried)


@pytest.mark.slow("a stream is restarted at every abort")
@pytest.mark.timeout(900)
def test_aborts_of_a_stream_of_columns_alone_leave_no_trace(
    spark: SparkSession, tmp_path: Path, boundaries: Boundaries
) -> None:
    check_aborts(Columns, 20, spark, tmp_path, boundaries, set())


@pytest.mark.slow("a stream is restarted at every abort")
@pytest.mark.timeout(900)
def test_aborts_while_queries_come_and_go_leave_no_trace(
    spark: SparkSession, tmp_path: Path, boundaries: Boundaries
) -> None:
    check_aborts(Queries, 20, spark, tmp_path, boundaries, set())


@pytest.mark.slow("a stream is restarted at every abort")
@pytest.mark.timeout(900)
def test_aborts_within_loops_leave_no_trace(
    spark: SparkSession, tmp_path: Path, boundaries: Boundaries, tried: set[str]
) -> None:
    check_aborts(Loops, 15, spark, tmp_path, boundaries, tried)


@only_full("in every run a stream of loops in two shards is stopped and goes on, and a driver is killed")
@pytest.mark.slow("a stream is restarted at every abort")
@pytest.mark.timeout(900)
def test_aborts_between_rounds_of_loops_leave_no_trace(
    spark: SparkSession, tmp_path: Path, boundaries: Boundaries
) -> None:
    check_aborts(ShardedLoops, 10, spark, tmp_path, boundaries, set())


def check_aborts(
    universe: type[Universe], count: int, spark: SparkSession, tmp_path: Path, boundaries: Boundaries, tried: set[str]
) -> None:
    """Aborts a stream at so many boundaries, or at one of each kind that was not tried, and compares it."""
    undisturbed, disturbed = universe(spark, tmp_path / "undisturbed"), universe(spark, tmp_path / "disturbed")
    boundaries.faults = undisturbed.faults
    assert undisturbed.run() == []
    assert all(undisturbed.output().values())
    points = random.Random(1).sample(undisturbed.points(), count) if FULL else undisturbed.one_of_each_kind(tried)
    assert points
    boundaries.faults = disturbed.faults
    disturbed.faults.planned = set(points)
    assert sorted(disturbed.run()) == sorted(points)
    assert disturbed.output() == undisturbed.output()
