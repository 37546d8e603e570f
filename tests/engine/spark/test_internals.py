"""Spark's insides that Headrace relies on, a test each, by the names of docs/upgrading.md.

None of this is Spark's public API. After an upgrade of PySpark, whatever changed fails here by its name.
"""

from __future__ import annotations

import importlib
import inspect
import json
import operator
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaObject
from pyspark import SparkContext, TaskContext
from pyspark.core import rdd
from pyspark.core.rdd import Partitioner, portable_hash
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.shuffle import Aggregator, ExternalMerger
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import ByteType, DataType, IntegerType, ShortType, StructField, StructType

from headrace.engine.catalyst.analysis import _LOGGERS
from headrace.engine.columns.sparkhash import spark_hash
from headrace.engine.plan.taps import _GENERATOR
from headrace.engine.spark.batchvalue import BatchValue
from headrace.engine.spark.filelogs import files_read, forget_untaken, names_files, read_before
from headrace.engine.spark.files import Folder
from headrace.engine.spark.inputrows import rows_again, rows_read, rows_sieved, settled, sieve
from headrace.engine.spark.javasources import install_native_files, install_state_settings
from headrace.engine.spark.mappedrecords import PLACES, Layout, mapped_frame
from headrace.engine.spark.offsetlog import OffsetLog
from headrace.engine.spark.session import WORKER_DAEMON
from headrace.engine.spark.sparkhome import archive_in, linked_home
from headrace.engine.spark.tryeval import try_eval
from headrace.engine.stream import directfiles
from headrace.views.sparksql.sparkfunctions import FUNCTIONS, REFUSED
from headrace.views.sparksql.sparkplans import check

PAGE = Path(__file__).parents[3] / "docs" / "upgrading.md"
PROPERTIES = Path("headrace/engine/spark/log4j2.properties")
SQL = "org.apache.spark.sql.execution."


class Stream:
    """A query of Spark's own that has read two files in two batches, and goes on."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.checkpoint = spark, folder / "checkpoint"
        self.times: list[int] = []
        self.read: list[int] = []
        self.sieved: list[tuple[int, int]] = []
        self.again: list[str] = []
        self.numbers: list[tuple[int, str]] = []
        self.input = folder / "in"
        self.input.mkdir()
        lines = spark.readStream.text(str(self.input)).alias("lines")
        data = lines.where(sieve(F.col("value") != "b")).groupBy("value").count()
        writer = data.withColumn("now", F.current_timestamp()).writeStream.outputMode("update").foreachBatch(self._note)
        self.query: StreamingQuery = writer.option("checkpointLocation", str(self.checkpoint)).start()
        for number in range(2):
            (self.input / f"{number}.txt").write_text("a\nb\n")
            self.query.processAllAvailable()

    def _note(self, rows: Any, batch_id: int) -> None:
        (time,) = {row[0] for row in rows.select(F.unix_millis("now")).collect()}
        self.times.append(time)
        self.read.append(rows_read(self.spark))
        self.sieved.append(rows_sieved(self.spark, "lines"))
        task = self.spark.sparkContext.parallelize([0], 1).map(lambda _: _property("streaming.sql.batchId"))
        self.numbers += [(batch_id, number) for number in task.collect()]
        again = rows_again(self.spark, "lines", rows.sparkSession).where(F.col("value") != "a")
        self.again += [row.value for row in settled(again).collect()]

    @property
    def execution(self) -> Any:
        return self.query._jsq.streamingQuery()

    def log(self, name: str) -> list[str]:
        return (self.checkpoint / name).read_text().splitlines()


def _property(name: str) -> str:
    context = TaskContext.get()
    assert context is not None
    return str(context.getLocalProperty(name))


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    stream = Stream(spark, tmp_path_factory.mktemp("stream"))
    yield stream
    stream.query.stop()


ITEMS: dict[str, Callable[[Stream], None]] = {}


def item(name: str) -> Callable[[Callable[[Stream], None]], None]:
    """Registers a check under its name on the page."""

    def add(check: Callable[[Stream], None]) -> None:
        ITEMS[name] = check

    return add


def loadable(stream: Stream, *names: str) -> list[str]:
    """Those of these classes that Spark's JVM does not have."""
    jvm: Any = stream.spark._jvm
    return [name for name in names if not jvm.org.apache.spark.util.Utils.classIsLoadable(name)]


@item("limits of a running query")
def _(stream: Stream) -> None:
    limits = stream.execution.uniqueSources().iterator()
    pair = limits.next()
    assert not limits.hasNext()
    assert str(pair._1()).startswith("FileStreamSource[")
    assert hasattr(stream.execution, "uniqueSources_$eq")
    jvm: Any = stream.spark._jvm
    jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxFiles(1)
    limit = json.dumps({"_type": "ReadMaxRows", "max_rows": 7})
    read = jvm.org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceReadLimit(limit)
    assert json.loads(read.json()) == json.loads(limit)


@item("files that a file source has seen")
def _(stream: Stream) -> None:
    source = stream.execution.uniqueSources().iterator().next()._1()
    assert source.seenFiles().size() == 2


@item("offsets of a running query")
def _(stream: Stream) -> None:
    source = stream.execution.uniqueSources().iterator().next()._1()
    for offsets in (stream.execution.committedOffsets(), stream.execution.availableOffsets()):
        assert json.loads(offsets.get(source).get().json()) == {"logOffset": 1}


@item("classes of sources of topics")
def _(stream: Stream) -> None:
    python = f"{SQL}datasources.v2.python.PythonMicroBatchStream"
    assert loadable(stream, python) == []


@item("log of offsets")
def _(stream: Stream) -> None:
    version, metadata, *sources = stream.log("offsets/1")
    assert version == "v1"
    assert json.loads(metadata)["batchTimestampMs"] > 0
    assert [json.loads(source) for source in sources] == [{"logOffset": 1}]
    assert OffsetLog(Folder(stream.spark, str(stream.checkpoint))).ends_of(1) == [{"logOffset": 1}]


@item("time of a batch")
def _(stream: Stream) -> None:
    log = OffsetLog(Folder(stream.spark, str(stream.checkpoint)))
    assert stream.times == [log.time_of(batch) // 1000 for batch in range(2)]


@item("log of a file source")
def _(stream: Stream) -> None:
    _, entry = stream.log("sources/0/1")
    assert json.loads(entry)["path"].endswith("/in/1.txt")
    assert entry.startswith('{"path":')


@item("files that a source had read before")
def _(stream: Stream) -> None:
    checkpoint = Folder(stream.spark, f"{stream.input}-before")
    read = files_read(Folder(stream.spark, str(stream.checkpoint / "sources/0")), 0)
    assert [Path(path).name for path in read] == ["0.txt"]
    checkpoint.folder("sources/0").write("0", read_before(read))
    forget_untaken(checkpoint)
    names: list[str] = []
    lines = stream.spark.readStream.text(str(stream.input)).select(F.input_file_name().alias("name"))
    writer = lines.writeStream.foreachBatch(lambda rows, batch: names.extend(row.name for row in rows.collect()))
    for _ in range(2):
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    assert {Path(name).name for name in names} == {"1.txt"}
    assert len(names) == 2  # its lines, once


@item("partitions of the reader of state")
def _(stream: Stream) -> None:
    state = stream.spark.read.format("statestore").load(str(stream.checkpoint))
    where = state.select("partition_id", F.spark_partition_id().alias("at")).collect()
    assert where and all(row["partition_id"] == row["at"] for row in where)
    assert state.rdd.getNumPartitions() > max(row["at"] for row in where)


@item("names of files")
def _(stream: Stream) -> None:
    schema, checkpoint = "path string, modificationTime timestamp, length long, content binary", f"{stream.input}-names"
    files = stream.spark.readStream.schema(schema).format("binaryFile").load(str(stream.input)).select("path")
    names: list[str] = []
    writer = files.writeStream.foreachBatch(lambda rows, batch: names.extend(row.path for row in rows.collect()))
    query = writer.option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
        assert sorted(names) == [f"file:{stream.input}/{number}.txt" for number in range(2)]
        logged = {line for batch in range(2) for line in stream.log(f"sources/0/{batch}")[1:]}
        paths = [json.loads(line)["path"] for line in Path(checkpoint, "sources/0/0").read_text().splitlines()[1:]]
        assert sorted(paths) == sorted(json.loads(line)["path"] for line in logged)
    finally:
        query.stop()
    columns = Path(checkpoint, "in", "day=3")
    columns.parent.mkdir()
    by_day = stream.spark.readStream.schema(schema).format("binaryFile").load(str(columns.parent)).select("path")
    columns.mkdir()
    (columns / "0.txt").write_text("a")
    query = by_day.writeStream.format("noop").option("checkpointLocation", f"{checkpoint}-by-day").start()
    with pytest.raises(StreamingQueryException, match=directfiles._OTHER_COLUMNS):
        query.processAllAvailable()


@item("files of a checkpoint that name paths")
def _(stream: Stream) -> None:
    names = [str(path.relative_to(stream.checkpoint)) for path in stream.checkpoint.rglob("*") if path.is_file()]
    holding = {name for name in names if str(stream.checkpoint).encode() in (stream.checkpoint / name).read_bytes()}
    assert {name for name in holding if not names_files(name)} == set()
    assert {name for name in names if name.startswith("sources/0/")} >= {"sources/0/0", "sources/0/1"}


@item("progress of a query")
def _(stream: Stream) -> None:
    progress = json.loads(stream.query.lastProgress.json)  # type: ignore[union-attr]
    assert progress["durationMs"]["triggerExecution"] >= 0
    (source,) = progress["sources"]
    assert {"numInputRows", "processedRowsPerSecond", "startOffset", "endOffset", "latestOffset"} <= set(source)


@item("partitions of pairs")
def _(stream: Stream) -> None:
    context = SparkContext.getOrCreate()
    pairs = context.parallelize([(key, key) for key in (1, 2.5, "a", b"x")]).partitionBy(3)
    assert pairs.partitioner == Partitioner(3, portable_hash)
    assert pairs.partitionBy(3) is pairs  # nothing is exchanged

    def hashed(number: int, part: Any) -> list[Any]:  # in workers, where texts have the same hash everywhere
        return [(key, number, portable_hash(key) % 3, hash(key) % 3) for key, _ in part]

    found = pairs.mapPartitionsWithIndex(hashed).collect()
    assert sorted(str(key) for key, *_ in found) == ["1", "2.5", "a", "b'x'"]
    assert all(number == portable == plain for _, number, portable, plain in found)
    merger: Any = ExternalMerger(Aggregator(lambda value: value, operator.add, operator.add))
    merger.mergeCombiners([("a", 1), ("b", 2), ("a", 3)])
    assert sorted(merger.items()) == [("a", 4), ("b", 2)]


@item("rows that a micro-batch has read")
def _(stream: Stream) -> None:
    assert stream.read == [2, 2]


@item("rows that a condition of a micro-batch lets through")
def _(stream: Stream) -> None:
    assert stream.sieved == [(2, 1), (2, 1)]


@item("rows of a micro-batch, once more")
def _(stream: Stream) -> None:
    assert stream.again == ["b", "b"]


@item("a number of each micro-batch")
def _(stream: Stream) -> None:
    value, session = BatchValue(stream.spark), stream.spark.newSession()
    for name, setting in {"wholeStage": "true", "factoryMode": "CODEGEN_ONLY"}.items():
        session.conf.set(f"spark.sql.codegen.{name}", setting)

    def code(now: int) -> str:
        value.set(now)
        rows = session.range(3).select((F.col("id") + value.column).alias("sum"))
        assert [row.sum for row in rows.collect()] == [now, now + 1, now + 2]
        return str(rows._jdf.queryExecution().executedPlan().doCodeGen()._2().body())

    assert code(7) == code(1_700_000_000_000_000)


@item("number of the micro-batch, in its tasks")
def _(stream: Stream) -> None:
    assert stream.numbers == [(0, "0"), (1, "1")]


@item("hash of a partition")
def _(stream: Stream) -> None:
    numbers = [0, 1, -1, 2**40, -(2**40)]
    rows = stream.spark.createDataFrame([(number,) for number in numbers], "n long").select("n", F.hash("n")).collect()
    assert [row[1] for row in rows] == [spark_hash(row[0]) for row in rows]
    placed = stream.spark.createDataFrame([(number,) for number in numbers], "n long").repartition(3, "n")
    assert {row.n: row.p for row in placed.select("n", F.spark_partition_id().alias("p")).collect()} == {
        number: spark_hash(number) % 3 for number in numbers
    }


@item("planning of a stateful operator")
def _(stream: Stream) -> None:
    from pyspark.sql.streaming import transform_with_state_driver_worker as planning

    text = inspect.getsource(planning)
    assert "TransformWithStateInPandasFuncMode.PRE_INIT" in text
    assert 'log_name = "Streaming TransformWithStateInPandas Python worker"' in text
    assert 'print(f"Starting {log_name}.\\n")' in text


@item("environment of Python workers")
def _(stream: Stream) -> None:
    context = stream.spark.sparkContext
    assert isinstance(context.environment, dict)
    assert "sc.environment" in inspect.getsource(rdd._prepare_for_python_RDD)


@item("expressions that fail")
def _(stream: Stream) -> None:
    rows = stream.spark.createDataFrame([(6, 3, "7"), (1, 0, "7"), (1, 1, "x")], "a long, b long, t string")
    twice = [F.expr("a div b").alias("_0"), F.expr("a div b + 1").alias("_1"), F.expr("CAST(t AS INT)").alias("_2")]
    before = stream.spark.conf.get("spark.sql.codegen.wholeStage")
    for wide in ("true", "false", before):  # common parts of expressions are computed once
        stream.spark.conf.set("spark.sql.codegen.wholeStage", str(wide))
        tried = try_eval(stream.spark, F.when(F.col("a").isNotNull(), F.struct(*twice)))
        found = rows.select(tried.alias("v")).select("v._0", "v._1", "v._2", F.col("v").isNull()).collect()
        assert [tuple(row) for row in found] == [(2, 3, 7, False), (None, None, None, True), (None, None, None, True)]


@item("analyzed expressions")
def _(stream: Stream) -> None:
    frame = stream.spark.createDataFrame([], "n long, t timestamp, s string")

    def expression(text: str) -> Any:
        return frame.selectExpr(text)._jdf.queryExecution().analyzed().projectList().head().child()

    added = expression("n + 1")
    assert (added.getClass().getSimpleName(), str(added.evalMode())) == ("Add", "ANSI")
    assert str(expression("try_add(n, 1)").children().head().evalMode()) == "TRY"
    cast = added.right()
    assert (cast.getClass().getSimpleName(), cast.dataType().simpleString(), cast.eval(None)) == ("Cast", "bigint", 1)
    assert expression("- n").failOnError() is True
    assert expression("hour(t)").timeZoneId().isDefined()
    assert expression("s LIKE 'a'").escapeChar() == "\\"
    between = expression("n BETWEEN 1 AND 2").children().head()
    assert between.getClass().getSimpleName() == "With" and between.defs().size() == 1


@item("loggers of refusals")
def _(stream: Stream) -> None:
    assert re.findall(r'getLogger\("(\w+)"\)', inspect.getsource(PySparkException._log_exception)) == list(_LOGGERS)


@item("standard error of the JVM")
def _(stream: Stream) -> None:
    from pyspark.java_gateway import launch_gateway

    assert list(inspect.signature(launch_gateway).parameters) == ["conf", "popen_kwargs"]
    assert "gateway" in inspect.signature(type(stream.spark.sparkContext)).parameters


@item("callbacks of the JVM")
def _(stream: Stream) -> None:
    gateway: Any = type(stream.spark.sparkContext)._gateway
    client = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient")
    field = client.getDeclaredField("authToken")
    field.setAccessible(True)
    token = gateway.callback_server_parameters.auth_token
    assert token and field.get(JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()) == token


@item("sockets of Python workers")
def _(stream: Stream) -> None:
    from pyspark import daemon

    folder = Path(stream.spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir") or "")
    assert list(folder.glob(".*.sock"))
    assert "worker(sock, authenticated)" in inspect.getsource(daemon.manager)


@item("loggers")
def _(stream: Stream) -> None:
    text = (PAGE.parent.parent / PROPERTIES).read_text("utf-8")
    names = re.findall(r"^logger\.\w+\.name = (\S+)$", text, flags=re.MULTILINE)
    assert names
    assert [name for name in loadable(stream, *names) if loadable(stream, f"{name}$")] == []


@item("generators in the text of a column")
def _(stream: Stream) -> None:
    array = F.array(F.lit(1), F.lit(2))
    generators = (F.explode(array), F.explode_outer(array), F.posexplode(array), F.inline(F.array(F.struct(F.lit(1)))))
    assert all(_GENERATOR.search(str(column)) for column in generators)
    assert not any(_GENERATOR.search(str(column)) for column in (F.col("stacked"), F.size(array), F.lit(1)))


@item("parsed plans")
def _(stream: Stream) -> None:
    parser = stream.spark._jsparkSession.sessionState().sqlParser()
    check(parser.parsePlan("SELECT url, count(*) AS n FROM hits WHERE user > 1 GROUP BY url ORDER BY n"), ["hits"])


@item("names of functions")
def _(stream: Stream) -> None:
    fresh = stream.spark.newSession()  # without the functions that a session was given
    known = {function.name for function in fresh.catalog.listFunctions()}
    refused = {name for names in REFUSED.values() for name in names.split()}
    assert FUNCTIONS & refused == set()
    assert sorted(known ^ (FUNCTIONS | refused)) == []  # what an upgrade brings is to be judged


@item("collection of garbage in workers")
def _(stream: Stream) -> None:
    from pyspark import daemon

    assert "gc.collect()" in inspect.getsource(daemon)


@item("daemon of Python workers")
def _(stream: Stream) -> None:
    numbers = stream.spark.sparkContext.parallelize([0], 1)
    (command,) = numbers.map(lambda _: Path("/proc", str(os.getppid()), "cmdline").read_text()).collect()
    assert command.rstrip("\0").split("\0")[-3:] == ["-m", WORKER_DAEMON, "pyspark.worker"]


@item("modules of PySpark")
def _(stream: Stream) -> None:
    numbers = stream.spark.sparkContext.parallelize([0], 1)
    place = numbers.map(lambda _: (os.environ["SPARK_HOME"], importlib.import_module("pyspark").__file__))
    ((home, package),) = place.collect()
    assert home == str(linked_home()) and (archive_in(Path(home)) / "pyspark").is_symlink()
    assert package is not None and Path(package).is_file(), "it comes from an archive"


@item("farewell of Python processes")
def _(stream: Stream) -> None:
    from pyspark import daemon

    source = Path(daemon.__file__).read_text().splitlines()
    assert (source[263].strip(), source[94].strip()) == ("code = worker(sock, authenticated)", "outfile.flush()")


@item("file systems of Hadoop")
def _(stream: Stream) -> None:
    conf = stream.spark._jsparkSession.sessionState().newHadoopConf()
    assert conf.get("fs.defaultFS")
    jvm: Any = stream.spark._jvm
    assert jvm.org.apache.hadoop.fs.FileUtil.copy is not None


@item("permissions of local files")
def _(stream: Stream) -> None:
    install_native_files(stream.spark.sparkContext)
    jvm: Any = stream.spark._jvm
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(stream.spark._jsparkSession.sessionState().newHadoopConf())
    assert files.getRaw().getClass().getName() == "headrace.NativeFiles"


class Stored(StatefulProcessor):
    """A processor whose state has types that no other has, so that code for it would be compiled."""

    def __init__(self, *kinds: DataType) -> None:
        self.schema = StructType([StructField(f"c{number}", kind) for number, kind in enumerate(kinds)])

    def init(self, handle: Any) -> None:
        self.state = handle.getMapState("state", self.schema, self.schema)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        stored = (len(list(rows)),) * len(self.schema)
        self.state.updateValue(stored, stored)
        yield Row(id=self.state.getValue(stored)[0])

    def close(self) -> None:
        pass


@item("settings of threads that serve state")
def _(stream: Stream) -> None:
    install_state_settings(stream.spark.sparkContext)
    jvm: Any = stream.spark._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    session = stream.spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    session.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    numbered = session.range(5).withColumn("key", F.col("id") * 0).groupBy("key")
    grown = []
    for kinds in ([ByteType(), ShortType()], [ShortType(), ByteType(), IntegerType()]):
        before = compiled.getCount()
        assert numbered.transformWithState(Stored(*kinds), "id long", "Append", "None").collect() == [Row(id=5)]
        grown.append(compiled.getCount() - before)
    assert grown[1] == 0, grown


@item("tables of mapped files")
def _(stream: Stream) -> None:
    none = Layout(StructType([]), [], PLACES, PLACES, b"", 0, "", "")
    frame = mapped_frame(stream.spark, "nothing", none, [])
    assert frame.count() == 0
    assert "BatchScan nothing" in frame._jdf.queryExecution().executedPlan().toString()


@item("interpreted expressions")
def _(stream: Stream) -> None:
    jvm: Any = stream.spark._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    session = stream.spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    grown = []
    for mode in ("FALLBACK", "NO_CODEGEN"):
        session.conf.set("spark.sql.codegen.factoryMode", mode)
        before = compiled.getCount()
        assert session.range(3).selectExpr(f"id + length(concat('{mode}', id))").count() == 3
        assert len(session.range(3).selectExpr(f"id * 3 + length(concat('{mode}', id))").collect()) == 3
        grown.append(compiled.getCount() - before)
    assert grown[0] > 0 and grown[1] == 0


@pytest.mark.parametrize("name", ITEMS)
def test_spark_is_as_we_rely_on(name: str, stream: Stream) -> None:
    ITEMS[name](stream)


def test_the_page_lists_every_item() -> None:
    section = PAGE.read_text("utf-8").partition("## Spark")[2].partition("\n## ")[0]
    assert re.findall(r"^\| ([a-z][^|]+?) \|", section, flags=re.MULTILINE) == list(ITEMS)
