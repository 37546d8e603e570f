"""Nexmark's queries: Headrace in columns and in Python functions, and its rivals, in one run, on events that it makes.

    python bench/nexmark.py [--quick] [--only q1,q7] [--rows 400000] [--peers] [--forms columns,spark]

columns    Headrace: Select, Where, GroupBy
functions  Headrace: Python functions, one call for each event
spark      Structured Streaming by hand, in the same session and with the settings that Headrace gives itself
udf        the same with its fastest Python UDF (q1, q2, q14), a call for each Arrow array
flink      with --peers: Flink SQL, in an environment that `make peers` sets up
bytewax    with --peers: Bytewax, likewise

The events are in Parquet files, and so are the answers. Streams read two files a batch: the first ones warm them up, of
the others the median counts. Each answer is compared with a recount by DuckDB. CPU seconds are those of all processes
of a form while those batches ran. An event is a row that the query reads. q5, q7 and q19 give the highest numbers
without the rest of their bids. The last line is JSON.
"""

from __future__ import annotations

import argparse
import inspect
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from _nexmark import peers, recount, spark
from _nexmark.arrivals import FILES, SCHEMAS, TICKS, Arrivals
from _nexmark.processes import cpu_seconds
from _sections import Bench, Verdict, run
from _streams import Running, headrace_stream, rival_stream
from pyspark.sql.pandas.types import from_arrow_schema

import headrace as hr
from examples.nexmark import columns, functions

FORMS = ("columns", "spark", "functions", "udf")
PEERS = ("flink", "bytewax")
REASONS: dict[str, dict[str, str]] = {
    "columns": columns.NOT_HERE,
    "functions": functions.NOT_HERE,
    "spark": spark.NOT_HERE,
    "flink": peers.NOT_IN_FLINK,
    "bytewax": peers.NOT_IN_BYTEWAX,
}
"""Why a form does not have a query, by form and query."""
STATELESS = ("q0", "q1", "q2", "q14")
AGAINST_SPARK = {**dict.fromkeys(STATELESS, 0.95), "q3": 1.0, "q5": 2.5, "q7": 1.0, "q8": 1.5, "q11": 1.0}
"""The least rate, as a multiple of Spark's."""


class Figure(NamedTuple):
    """What a form did with a query: events a second, CPU seconds per million events, and the first batch in seconds."""

    query: str
    form: str
    rate: float
    cpu: float
    first: float | None = None
    parts: dict[str, float] | None = None
    """Milliseconds of a batch, by Spark's own account."""


def kinds(query: Callable[..., Any]) -> tuple[str, ...]:
    """The kinds of events that a query takes, by its parameters."""
    return tuple(inspect.signature(query).parameters)


class Nexmark:
    """The queries as sections, over files that are made when they are first needed."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], Arrivals] = {}
        self._flink: peers.Flink | None = None

    def arrivals(self, bench: Bench, of: tuple[str, ...]) -> Arrivals:
        of = ("auction", "bid") if "bid" in of else of
        if of not in self._made:
            rows = bench.asked.rows or (50_000 if bench.quick else 400_000)
            folder = bench.folder.parent / f"data-{'-'.join(of)}"
            self._made[of] = Arrivals(folder, of, rows, sum(batches(bench, "q0", "columns")))
        return self._made[of]

    def stop(self) -> None:
        if self._flink is not None:
            self._flink.stop()

    def section(self, query: str) -> Callable[[Bench], Iterator[Verdict]]:
        section = partial(self.measure, query)
        section.__name__ = query  # type: ignore[attr-defined]
        return section

    def measure(self, query: str, bench: Bench) -> Iterator[Verdict]:
        of = kinds(getattr(functions, query))
        arrivals = self.arrivals(bench, of)
        figures: dict[str, Figure] = {}
        failed: dict[str, Exception] = {}
        for form in (*bench.asked.forms.split(","), *(PEERS if bench.asked.peers else ())):
            missing = self._missing(query, form)
            if missing is not None:
                if missing:
                    bench.say(f"{form:10} not: {missing}")
                    bench.figures.append({"query": query, "form": form, "not": missing})
                continue
            try:
                figures[form] = self._figure(bench, arrivals, query, form, of)
            except Exception as error:  # the other forms still tell something
                failed[form] = error
                bench.say(f"{form:10} FAILED: {str(error).splitlines()[:1]}")
        for figure in figures.values():
            numbers = {"rate": round(figure.rate), "cpu": round(figure.cpu, 2), "batch": arrivals.rows_of(of)}
            bench.figures.append({**figure._asdict(), **numbers})
        yield from verdicts(query, figures)
        if failed:
            raise RuntimeError(", ".join(failed))

    @staticmethod
    def _missing(query: str, form: str) -> str | None:
        """Why a form does not have a query, if it does not; there is nothing to say of UDFs."""
        if form == "udf":
            return None if query in spark.UDFS else ""
        if form in PEERS and not peers.PYTHONS[form].exists():
            return f"there is no {peers.PYTHONS[form]}; run: make peers"
        return REASONS[form].get(query)

    def _figure(self, bench: Bench, arrivals: Arrivals, query: str, form: str, of: tuple[str, ...]) -> Figure:
        if form == "flink":
            return self._flink_figure(bench, arrivals, query, of)
        if form == "bytewax":
            return _bytewax_figure(bench, arrivals, query, of)
        start: Callable[[Path], Running]
        if form in ("columns", "functions"):
            start = partial(_start_ours, bench, getattr(columns if form == "columns" else functions, query), query)
        else:
            start = partial(_start_spark, bench, getattr(spark, query) if form == "spark" else spark.UDFS[query])
        return _measured(bench, arrivals, query, form, of, start)

    def _flink_figure(self, bench: Bench, arrivals: Arrivals, query: str, of: tuple[str, ...]) -> Figure:
        """What further batches cost: a run over all of them against a run over one, after one that warms up."""
        if self._flink is None:
            self._flink = peers.Flink(bench.folder.parent)
        further = 2 if bench.quick else 5
        one, whole = arrivals.folders(of, 1), arrivals.folders(of, 1 + further)
        self._flink.run(query, one, bench.folder / "flink-warm")
        short = self._flink.run(query, one, bench.folder / "flink-short")
        out = bench.folder / "flink"
        long = self._flink.run(query, whole, out)
        rows = further * arrivals.rows_of(of)
        wall, cpu = long.wall - short.wall, long.cpu - short.cpu
        if bench.quick:  # so few rows that starting is most of it
            rows, wall, cpu = rows + arrivals.rows_of(of), long.wall, long.cpu
        figure = Figure(query, "flink", rows / wall, cpu / rows * 1e6, short.wall)
        answers = recount.check(query, {kind: f"{folder}/*.parquet" for kind, folder in whole.items()}, f"{out}/*")
        _say(bench, figure, answers, f"one batch {short.wall:.1f} s, with {further} more {long.wall:.1f} s")
        return figure


def batches(bench: Bench, query: str, form: str) -> tuple[int, int]:
    """How many batches a form warms up with, and how many count: what takes long gets fewer."""
    return (1, 2) if bench.quick or (form == "functions" and query not in STATELESS) else (3, 3)


def _say(bench: Bench, figure: Figure, answers: int, more: str) -> None:
    first = "" if figure.first is None else f"first {figure.first:5.1f} s"
    bench.say(
        f"{figure.form:10} {figure.rate:10,.0f} events/s  {figure.cpu:6.2f} CPU s per million  {first:13}  "
        f"{answers:9,} rows as recounted   {more}"
    )


def _bytewax_figure(bench: Bench, arrivals: Arrivals, query: str, of: tuple[str, ...]) -> Figure:
    """A run over one batch, from the first row read to the last one written: starting is not counted."""
    inputs = {kind: f"{arrivals.folder}/{kind}/batch-0" for kind in of}
    took = peers.Bytewax().run(query, inputs, bench.folder / "bytewax")
    rows = arrivals.rows_of(of)
    figure = Figure(query, "bytewax", rows / took.wall, took.cpu / rows * 1e6)
    files = {kind: f"{folder}/*.parquet" for kind, folder in inputs.items()}
    _say(bench, figure, recount.check(query, files, f"{bench.folder}/bytewax/*.parquet"), f"{took.wall:.1f} s")
    return figure


def _start_ours(bench: Bench, query: Callable[..., hr.PCollection], name: str, folder: Path) -> Running:
    p = hr.Pipeline(spark=bench.spark)
    sources = {
        kind: p
        | kind >> hr.ReadParquet(f"{folder}/{kind}/*", schema=from_arrow_schema(SCHEMAS[kind]), event_time="date_time")
        for kind in kinds(query)
    }
    query(**sources) | hr.WriteParquet(f"{folder}/out")
    return headrace_stream(p, folder, name, max_files_per_batch=FILES)


def _start_spark(bench: Bench, query: Callable[..., spark.Answer], folder: Path) -> Running:
    frames = {
        kind: bench.spark.readStream.schema(from_arrow_schema(SCHEMAS[kind]))
        .option("maxFilesPerTrigger", FILES)
        .parquet(f"{folder}/{kind}/*")
        for kind in kinds(query)
    }
    answer = query(**frames)
    return rival_stream(bench.spark, answer.frame, answer.mode, folder, "rival")


def _measured(
    bench: Bench, arrivals: Arrivals, query: str, form: str, of: tuple[str, ...], start: Callable[[Path], Running]
) -> Figure:
    warm, timed = batches(bench, query, form)
    folder, batch = bench.folder / form, arrivals.rows_of(of)
    for number in range(warm + timed):
        arrivals.arrive(f"batch-{number}", folder)
    with start(folder) as running:
        _wait_for(running, warm)
        before = cpu_seconds()
        _wait_for(running, warm + timed)
        cpu = cpu_seconds() - before
        progress = running.progress()
        ends = running.done
        if query == "q12":
            time.sleep(10.5)  # its windows are of processing time
            if form != "spark":  # and it has batches without end, for the clock
                ends = lambda: _wait_for(running, len(running.progress()) + 3)  # noqa: E731
        for tick in range(TICKS):
            arrivals.arrive(f"tick-{tick}", folder)
            ends()
    counted = progress[warm : warm + timed]
    took = [each["durationMs"]["triggerExecution"] for each in counted]
    assert [each["batchId"] for each in counted] == list(range(warm, warm + timed)), "a batch has other files"
    inputs = {kind: arrivals.files(kind, warm + timed) for kind in arrivals.kinds}
    out = "out" if form in ("columns", "functions") else "out-rival"
    answers = recount.check(query, inputs, f"{folder}/{out}/*/*.parquet")
    first = progress[0]["durationMs"]["triggerExecution"] / 1000
    parts = _parts(counted)
    figure = Figure(query, form, batch / statistics.median(took) * 1000, cpu / (timed * batch) * 1e6, first, parts)
    told = "  ".join(f"{name} {ms:.0f}" for name, ms in parts.items())
    _say(bench, figure, answers, f"ms {[round(each) for each in took]}   {told}")
    return figure


def _wait_for(running: Running, batches: int) -> None:
    """Waits until so many batches are through. Spark is asked for its account of them when there is a new one."""
    seen = None
    while True:
        last = running.query.lastProgress
        if last is not None and last["batchId"] != seen:
            seen = last["batchId"]
            if len(running.progress()) >= batches:
                return
        if not running.query.isActive:
            raise RuntimeError(f"the stream ended: {running.query.exception()}")
        time.sleep(0.05)


def _parts(progress: list[dict[str, Any]]) -> dict[str, float]:
    """Where the time of these batches went, by Spark's own account: medians."""
    told = [each["durationMs"] for each in progress]
    names = sorted({name for each in told for name in each} - {"triggerExecution"})
    medians = {name: statistics.median(each.get(name, 0) for each in told) for name in names}
    return {name: ms for name, ms in medians.items() if ms >= 10}


CAUSES = {
    "addBatch": "the jobs of the batch (rows to Python and back, state)",
    "latestOffset": "listing files",
    "getBatch": "asking which files it has",
    "queryPlanning": "planning the batch",
    "walCommit": "logs",
    "commitOffsets": "logs",
}


def _more(mine: Figure, other: Figure) -> str:
    """Says in which part of a batch a form takes longer than another."""
    if mine.parts is None or other.parts is None:
        return "its own account of a batch is above"
    more = {name: ms - other.parts.get(name, 0) for name, ms in mine.parts.items()}
    named = [f"{ms:.0f} ms in {CAUSES.get(name, name)}" for name, ms in sorted(more.items(), key=lambda each: -each[1])]
    return f"a batch takes longer by {', '.join(named[:2])}"


def verdicts(query: str, figures: dict[str, Figure]) -> Iterator[Verdict]:
    """What was aimed at with this query, as far as its forms were measured."""

    def ratio(mine: str, other: str, target: float) -> Iterator[Verdict]:
        if mine in figures and other in figures:
            measured = figures[mine].rate / figures[other].rate
            remedy = _more(figures[mine], figures[other])
            yield Verdict(f"{query} {mine} / {other}", measured, target, True, remedy)

    ours = "columns" if "columns" in figures else "functions"
    if query in AGAINST_SPARK:
        yield from ratio(ours, "spark", AGAINST_SPARK[query])
    if query in spark.UDFS:
        yield from ratio("functions", "udf", 1.0)
        yield from ratio("functions", "bytewax", 1.2)
    for rival, queries, most in (("spark", ("q1", "q2", "q7"), 1.1), ("flink", ("q5", "q7", "q11"), 1.0)):
        if query in queries and ours in figures and rival in figures:
            used = figures[ours].cpu / figures[rival].cpu
            remedy = _more(figures[ours], figures[rival])
            yield Verdict(f"{query} CPU {ours} / {rival}", used, most, False, remedy)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=0, help="rows of a batch (default 400000, quick 50000)")
    parser.add_argument("--peers", action="store_true", help="Flink SQL and Bytewax, too; see make peers")
    parser.add_argument("--forms", default=",".join(FORMS), help="forms, with commas between them")


if __name__ == "__main__":
    nexmark = Nexmark()
    try:
        run("nexmark", __doc__, *(nexmark.section(query) for query in recount.QUERIES), options=_options)
    finally:
        nexmark.stop()
