"""The sandbox process of ad-hoc SQL on Spark: it has a Spark of its own and runs statements one by one.

The walls: the parsed plan may have only known nodes (see `sparkplans`), and the plan that was checked is the one that
runs; the analyzed plan may read only the given files; Spark looks for no table in files and has an empty catalog; and
process and JVM have no secrets and limited memory. `adhoc.sparkengine` starts it, and kills it when it must.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.model.jsontext import TooLarge, encode_pieces, rows_of
from headrace.views.adhoc.sqlrequest import JsonLimits, ParquetTable, RequestHead
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
    "spark.sql.runSQLOnFiles": "false",  # parquet.`/etc/x` is not a table
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""The Spark settings of each statement's session."""
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",  # the JVM listens even then, to every user of the machine
}


def start(master: str, megabytes: int, folder: str) -> SparkSession:
    """Starts a Spark with so much memory, which writes its files to a folder."""
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
    session.sparkContext.setLogLevel("OFF")  # errors are in the answers
    run(
        session, "SELECT count(*) FROM warm", {"warm": pa.table({"n": [1]})}, {}, 1
    )  # or it would be in the time of the first statement
    return session


def answer(spark: SparkSession, source: BinaryIO) -> bytes | None:
    """Answers the next request: a line of JSON, and after success the rows as an Arrow stream. None at the end."""
    line = source.readline()
    if not line:
        return None
    request: RequestHead = json.loads(line)
    limits = request["limits"]
    arrow = {name: pa.ipc.open_stream(source.read(size)).read_all() for name, size in request["arrow"].items()}
    late = threading.Event()

    def cancel() -> None:
        late.set()
        spark.sparkContext.cancelJobGroup(_GROUP)

    timer = threading.Timer(limits["seconds"], cancel)
    timer.start()
    try:
        result = run(spark, request["sql"], arrow, request["parquet"], limits["rows"])
    except Refused as error:
        return _line(error=str(error))
    except (PySparkException, Py4JError) as error:
        if late.is_set():
            return _line(error=f"the statement took longer than {limits['seconds']:g} seconds; query less at once")
        return _line(error=_message(error))
    finally:
        timer.cancel()
    truncated = result.num_rows > limits["rows"]
    result = result.slice(0, limits["rows"])
    if request["json"] is not None:
        return _json_reply(result, truncated, request["json"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, result.schema) as writer:
        writer.write_table(result)
    rows = bytes(sink.getvalue())
    return _line(truncated=truncated, bytes=len(rows)) + rows


def _json_reply(result: pa.Table, truncated: bool, limits: JsonLimits) -> bytes:
    rows = (row for batch in result.to_batches() for row in rows_of(batch, limits["cells"]))
    try:
        pieces = encode_pieces(rows, cells=limits["cells"], size=limits["bytes"])
    except TooLarge as error:
        return _line(error=str(error))
    head = _line(columns=result.schema.names, truncated=truncated, bytes=sum(map(len, pieces)))
    return b"".join([head, *pieces])


def run(
    spark: SparkSession, sql: str, arrow: Mapping[str, pa.Table], parquet: Mapping[str, ParquetTable], most: int
) -> pa.Table:
    """Runs a statement in a session of its own; returns its rows, and one more than `most` if there are more."""
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
        rows = read.where(files["where"]) if files["where"] else read
        rows.select(*[f"`{column}`" for column in files["columns"]] or "*").createOrReplaceTempView(name)
    session.sparkContext.setJobGroup(_GROUP, "ad-hoc SQL", interruptOnCancel=True)
    frame = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(inner, plan), session)
    paths = [path for files in parquet.values() for path in files["paths"]]
    check_read(frame._jdf.queryExecution().analyzed(), [_path(path) for path in paths])
    return frame.limit(most + 1).toArrow()


def _path(name: str) -> str:
    """Returns the path of a file that may be given as a URI."""
    scheme, colon, rest = name.partition(":")
    if not colon or "/" in scheme:
        return name
    return rest if not rest.startswith("//") else "/" + rest[2:].partition("/")[2]


def _message(error: PySparkException | Py4JError) -> str:
    """Returns what is wrong with a statement in one line, and nothing about this machine."""
    if isinstance(error, PySparkException) and (text := str(error).strip().partition("\n")[0]).startswith("["):
        return text
    if isinstance(error, Py4JJavaError) and "StackOverflowError" in str(error.java_exception.getClass().getName()):
        return "the statement is nested too deeply"
    return "the statement failed inside Spark; query less at once, or write it differently"


def _line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the JVM prints to standard output
    spark = start(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    answers.write(_line(ready=True))
    answers.flush()
    while (reply := answer(spark, sys.stdin.buffer)) is not None:
        answers.write(reply)
        answers.flush()
