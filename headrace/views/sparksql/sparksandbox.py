"""The inner side of ad-hoc SQL on Spark: a process with a Spark of its own, which runs statements one by one.

The walls: the parsed plan may hold only what is known (see `sparkplans`), and the plan that was checked is the one that
runs; the analyzed plan may read only the given files; Spark looks for no table in files and has an empty
catalog; and process and JVM have no secret and so much memory. `sparkadhoc` starts it, and kills it when it must.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, BinaryIO, Final

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.views.sparksql.sparkplans import Refused, check, check_read

_GROUP: Final = "ad-hoc"
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.driver.extraJavaOptions": "-Xss8m",  # deep plans
}

SESSION: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",  # '${env:HOME}' is text
    "spark.sql.runSQLOnFiles": "false",  # parquet.`/etc/x` is no table
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""The settings of each statement's session."""
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def started(master: str, megabytes: int, folder: str) -> SparkSession:
    """A Spark with so much memory, which keeps what it must keep in a folder."""
    settings = {
        **_SETTINGS,
        **(_LOCAL if master.startswith("local") else {}),
        "spark.driver.memory": f"{megabytes}m",
        "spark.driver.maxResultSize": f"{max(megabytes // 4, 1)}m",
        "spark.local.dir": f"{folder}/local",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    builder = SparkSession.builder.master(master).appName("headrace ad-hoc SQL")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # errors are told to who asked, and to nobody else
    run(session, "SELECT count(*) FROM warm", {"warm": pa.table({"n": [1]})}, {}, 1)  # not in the time of the first
    return session


def answer(spark: SparkSession, source: BinaryIO) -> bytes | None:
    """What the next request gets: a line of JSON, and if all went well the rows as an Arrow stream. None at the end."""
    line = source.readline()
    if not line:
        return None
    request = json.loads(line)
    limits = request["limits"]
    arrow = {name: pa.ipc.open_stream(source.read(size)).read_all() for name, size in request["arrow"].items()}
    late = threading.Event()

    def cancel() -> None:
        late.set()
        spark.sparkContext.cancelJobGroup(_GROUP)

    timer = threading.Timer(limits["seconds"], cancel)
    timer.start()
    try:
        found = run(spark, request["sql"], arrow, request["parquet"], limits["rows"])
    except Refused as error:
        return _line(error=str(error))
    except (PySparkException, Py4JError) as error:
        if late.is_set():
            return _line(error=f"the statement took longer than {limits['seconds']:g} seconds; ask for less at once")
        return _line(error=_told(error))
    finally:
        timer.cancel()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found.slice(0, limits["rows"]))
    rows = bytes(sink.getvalue())
    return _line(truncated=found.num_rows > limits["rows"], bytes=len(rows)) + rows


def run(
    spark: SparkSession, sql: str, arrow: dict[str, pa.Table], parquet: dict[str, dict[str, Any]], most: int
) -> pa.Table:
    """The rows of a statement in a session of its own, and one more than `most` if there are more."""
    session = spark.newSession()
    for setting, value in SESSION.items():
        session.conf.set(setting, value)
    jvm: Any = session._jvm
    inner: Any = session._jsparkSession
    plan = inner.sessionState().sqlParser().parsePlan(sql)
    check(plan, {*arrow, *parquet})
    for name, table in arrow.items():
        session.createDataFrame(table).createOrReplaceTempView(name)
    for name, files in parquet.items():
        read = session.read.option("__globPaths__", "false").parquet(*files["paths"])  # names, not patterns
        meant = read.where(files["where"]) if files["where"] else read
        meant.select(*[f"`{name}`" for name in files["columns"]] or "*").createOrReplaceTempView(name)
    session.sparkContext.setJobGroup(_GROUP, "ad-hoc SQL", interruptOnCancel=True)
    asked = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(inner, plan), session)
    paths = [path for files in parquet.values() for path in files["paths"]]
    check_read(asked._jdf.queryExecution().analyzed(), [_path(each) for each in paths])
    return asked.limit(most + 1).toArrow()


def _path(name: str) -> str:
    """The path of a file that may be named by an address."""
    scheme, colon, rest = name.partition(":")
    if not colon or "/" in scheme:
        return name
    return rest if not rest.startswith("//") else "/" + rest[2:].partition("/")[2]


def _told(error: PySparkException | Py4JError) -> str:
    """What is wrong with a statement, in a line; of what is wrong with this machine nothing."""
    if isinstance(error, PySparkException) and (text := str(error).strip().partition("\n")[0]).startswith("["):
        return text
    if isinstance(error, Py4JJavaError) and "StackOverflowError" in str(error.java_exception.getClass().getName()):
        return "the statement is nested too deeply"
    return "the statement failed inside Spark; ask for less at once, or write it in another way"


def _line(**said: Any) -> bytes:
    return json.dumps(said).encode() + b"\n"


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the JVM prints is no answer
    spark = started(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    answers.write(_line(ready=True))
    answers.flush()
    while (said := answer(spark, sys.stdin.buffer)) is not None:
        answers.write(said)
        answers.flush()
