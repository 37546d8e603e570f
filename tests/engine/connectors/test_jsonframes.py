"""JSON lines that a program reads: columns, times and bad records are those of Spark's parser, the definition."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

import headrace as hr
from headrace.edges.jsonlines import TEXT
from headrace.edges.parquetfiles import UnsureRead
from headrace.engine.batch import sources
from headrace.engine.connectors import fileranges, jsonframes
from headrace.engine.connectors.fromfiles import LENGTH, PATH, SHARE, SHARES
from headrace.engine.connectors.fromlines import read_range
from headrace.engine.worker.hidden import BAD, BAD_TYPE
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "n long, i int, x double, s string, t timestamp, b boolean"
TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from('"\\/{}[]:,\u2028é\0')), max_size=4)
TIMES = st.one_of(
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    st.datetimes().map(lambda at: at.isoformat(" ")),
    st.sampled_from(
        [
            "2026-01-31",
            "2026-01-31T10",
            "2026-01-31T10:00",
            "2026-02-30T10:00:00Z",
            "2026-01-31T10:00:00.1Z",
            "2026-01-31T10:00:00.Z",
            "2026-01-31T10:00:00.1234567Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T23:59:60Z",
            "2026-01-31T10:00:00+01:00",
            "0000-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999Z",
            "+10000-01-01T00:00:00Z",
            "2026-1-31T10:00:00Z",
            "2026-01-31t10:00:00z",
            "10:00:00Z",
            "epoch",
            "2026-01-31T10:00Z+01:00:00",
            "2026-01-31T10:00:00+0Z",
            "2026-01-31T10:00:00ZZ",
        ]
    ),
)
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        [
            "0",
            "-0",
            "-0.0",
            "0.0",
            "00",
            "01",
            "1.",
            ".5",
            "+1",
            "1e5",
            "1E+5",
            "1e-400",
            "1e400",
            "-1e400",
            "NaN",
            "-Infinity",
            "Infinity",
            "Inf",
            "INF",
            "-Inf",
            "-",
            "1e",
            "0x10",
            "9223372036854775807",
            "9223372036854775808",
            "2147483647",
            "2147483648",
            "0.1234567890123456789012345678901",
        ]
    ),
    st.just("1" * 1001),
)
STRINGS = st.one_of(
    st.one_of(TEXTS, TIMES).map(json.dumps),
    st.one_of(TEXTS, TIMES).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(['"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\x"', '"a\tb"', "'a'", '"\\u00e9"', '"\\u0000"']),
)
OTHERS = st.sampled_from(
    ["null", "true", "false", "True", "{}", "[]", '{"n": 1}', "[1, {}]", "[1,]", "", "nul", "[" * 1100 + "]" * 1100]
)
VALUES = st.one_of(NUMBERS, STRINGS, OTHERS)
USUAL = {
    "n": st.integers(-(2**63), 2**63 - 1).map(str),
    "i": st.integers(-(2**31), 2**31 - 1).map(str),
    "x": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "s": TEXTS.map(json.dumps),
    "t": st.datetimes().map(lambda at: f'"{at.isoformat()}Z"'),
    "b": st.sampled_from(["true", "false"]),
    "other": st.sampled_from(["1", '"x"', "[]", "{}", "null"]),
}
SPACE = st.sampled_from(["", "", "", " ", "\t"])


@st.composite
def objects(draw: st.DrawFn) -> str:
    """An object whose fields are usually of the types of their columns, and named once."""
    fields = draw(st.lists(st.sampled_from(list(USUAL)), max_size=5, unique=draw(st.integers(0, 9)) > 0))
    texts = []
    for name in fields:
        value = draw(USUAL[name] if draw(st.integers(0, 7)) else VALUES)
        shown = draw(
            st.sampled_from([json.dumps(name)] * 9 + [f'"\\u{ord(name[0]):04x}{name[1:]}"', name, f"'{name}'"])
        )
        texts.append(f"{shown}:{draw(SPACE)}{value}")
    return "{" + f"{draw(SPACE)},".join(texts) + draw(SPACE) + "}"


ODD = st.one_of(
    st.tuples(objects(), st.sampled_from(["", " ", ",", "\r", "}", "//", "\0}", "\0", "5"]), objects()).map("".join),
    st.tuples(objects(), st.integers(0, 30)).map(lambda pair: pair[0][: pair[1]]),
    st.tuples(objects(), st.integers(0, 30)).map(lambda pair: pair[0][pair[1] :]),
    st.tuples(SPACE, objects(), SPACE).map("".join),
    st.sampled_from(["", " ", "\t\x0b\f", "\ufeff{}", "[]", "[{}]", "1", "null", '{"n":\n1}', '{"n":{}\n{}}', "\x85"]),
    objects().map(lambda text: f'{{"pad": "{"x" * 1200}",{text[1:]}'),
)
LINES = st.lists(st.one_of(*[objects()] * 6, ODD), max_size=25)


class File(NamedTuple):
    """What a file has: lines, what is between them, what is before the first and after the last."""

    lines: list[str]
    end: str
    first: bytes
    ended: bool

    def text(self) -> bytes:
        text = self.end.join(self.lines).encode(errors="surrogatepass")
        return self.first + text + (self.end.encode() if self.ended else b"")


FILES = st.lists(
    st.builds(
        File,
        LINES,
        st.sampled_from(["\n", "\n", "\r\n", "\r"]),
        st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xff"]),
        st.booleans(),
    ),
    min_size=4,
    max_size=8,
)


def node_of(spark: SparkSession, source: hr.ReadJson) -> Any:
    p = hr.Pipeline(spark=spark)
    _ = p | "read" >> source
    (node,) = p.graph()
    return node


def by_program(spark: SparkSession, node: Any) -> sources.Files:
    """The files of a source as a program reads them, however small they are."""
    files = sources.as_files(spark, node, node.transform)
    assert files.by_program
    names = spark.read.format("binaryFile").schema(fileranges.FILES).load(node.transform.paths)
    return files.read_by_program(names)


def shown(data: DataFrame) -> list[str]:
    """The rows in some order, with times as numbers and floats by their digits."""
    table = data.withColumn(BAD, F.col(BAD).cast(from_arrow_type(BAD_TYPE))).toArrow()
    plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    lists = [column.to_pylist() for column in plain]
    return sorted(repr(dict(zip(table.column_names, row, strict=True))) for row in zip(*lists, strict=True))


@pytest.fixture(autouse=True)
def _small_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonframes, "_ENOUGH", 0)


@only_full("streams of columns read JSON by both in test_columnstream.py")
@pytest.mark.slow("jobs of Spark, two for each example")
@given(FILES, st.sampled_from([None, "t", "n"]), st.sampled_from([40, 1 << 20]))
@examples(40, suppress_health_check=list(HealthCheck), deadline=None)
def test_a_program_and_spark_read_the_same(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    files: list[File],
    event_time: str | None,
    share: int,
) -> None:
    folder = tmp_path_factory.mktemp("in") / "a b+%é"
    folder.mkdir()
    for number, file in enumerate(files):
        (folder / f"{number} x").write_bytes(file.text())
    monkeypatch.setattr(fileranges, "_SHARE", share)
    node = node_of(spark, hr.ReadJson(str(folder), schema=SCHEMA, event_time=event_time))
    expected = shown(sources.elements(node, sources.as_files(spark, node, node.transform)))
    assert shown(sources.elements(node, by_program(spark, node))) == expected


def test_ordinary_lines_are_read(spark: SparkSession, tmp_path: Path) -> None:
    lines = [{"n": n, "x": n / 7, "s": f"é{n}", "t": "2026-01-31T10:00:00Z", "more": [{}]} for n in range(1000)]
    (tmp_path / "a").write_text("\n".join(map(json.dumps, [*lines, {"n": "1"}])))
    node = node_of(spark, hr.ReadJson(str(tmp_path), schema=SCHEMA, event_time="t"))
    data = by_program(spark, node).data.toArrow()
    assert data.column(TEXT).null_count == 1000
    assert data.column("n").to_pylist() == [*range(1000), None]


def test_which_sources_a_program_reads(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"n": 1}\n')

    def files(schema: str = SCHEMA, **options: Any) -> tuple[str, ...]:
        node = node_of(spark, hr.ReadJson(str(tmp_path / "in"), schema=schema, **options))
        return sources.as_files(spark, node, node.transform).by_program

    assert files() == (str(tmp_path / "in" / "a"),)
    assert files(event_time="t") and files(event_time="n")
    assert not files(event_time="s") and not files(event_time="x")  # texts and fractions are Spark's to judge
    assert not files("n array<long>") and not files("n float") and not files("n date")
    with monkeypatch.context() as settings:
        settings.setitem(jsonframes._SETTINGS, "spark.sql.session.timeZone", "not as it is")
        assert not files()
    with monkeypatch.context() as settings:
        settings.setattr(jsonframes, "_ENOUGH", 10)
        assert not files()
    (tmp_path / "in" / "b.gz").write_bytes(gzip.compress(b'{"n": 2}\n'))
    assert not files()


@pytest.mark.slow("a stream that is started three times")
def test_a_stream_goes_on_with_what_a_program_does_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """First its own program reads, then one that leaves a line to Spark."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"n": 1, "t": "2026-01-31T10:00:00Z"}\n{"n": 2, "t": "2026-01-31T10:00:00Z"}\n')
    p, seen = hr.Pipeline(spark=spark), []
    rows = p | "rows" >> hr.ReadJson(f"{tmp_path}/in", schema="n long, t timestamp", event_time="t")
    rows | hr.Map(lambda row: row.n) | hr.ForEachBatch(lambda rows, batch: seen.extend(row.value for row in rows))
    handle: Any = p.run(stream=True, trigger=0, checkpoint=str(tmp_path / "checkpoint"))
    try:
        handle.query.processAllAvailable()
        assert sorted(seen) == [1, 2] and handle._stream.direct_files == {"rows"} and handle._stream._in_flight_only
        assert handle.status().sources["rows"].rows == 2
    finally:
        handle.stop()
    (tmp_path / "in" / "b").write_text('{"n": 3, "t": "2026-01-31T10:00:01Z"}\n{"n": "4"}\n')
    handle = p.run(stream=True, checkpoint=str(tmp_path / "checkpoint"))
    assert handle.wait().state == "done"
    assert sorted(seen) == [1, 2, 3] and handle._stream.direct_files == {"rows"}
    assert not handle._stream._in_flight_only
    assert handle.metrics()["rows"] == {"out": 1, "wrong type": 1}


def test_a_compressed_file_is_left_to_spark() -> None:
    with pytest.raises(UnsureRead, match="compressed"):
        read_range({PATH: "file:/in/a.gz", SHARE: 0, SHARES: 1, LENGTH: 1}, pa.schema([("n", pa.int64())]), None)


@pytest.mark.slow("a stream that is started four times")
def test_a_stream_of_columns_leaves_a_compressed_file_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> Any:
        p = hr.Pipeline(spark=spark)
        rows = p | "rows" >> hr.ReadJson(f"{tmp_path}/in", schema="n long, t timestamp", event_time="t")
        rows | hr.Select("n") | hr.WriteParquet(str(tmp_path / "out"))
        handle: Any = p.run(stream=True, checkpoint=str(tmp_path / "checkpoint"))
        assert handle.wait().state == "done" and handle._stream._columnar
        return handle

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"n": 1, "t": "2026-01-31T10:00:00Z"}\n{"n": "x"}\n')
    handle = run()
    assert handle._stream.direct_files == {"rows"} and handle.metrics()["rows"] == {"wrong type": 1}
    (tmp_path / "in" / "b.gz").write_bytes(gzip.compress(b'{"n": 3, "t": "2026-01-31T10:00:02Z"}\n'))
    monkeypatch.setattr(jsonframes, "is_compressed", lambda name: False)  # as if it came after the start
    assert not run()._stream.direct_files
    written = spark.read.option("recursiveFileLookup", True).parquet(str(tmp_path / "out"))
    assert sorted(row.n for row in written.collect()) == [1, 3]
