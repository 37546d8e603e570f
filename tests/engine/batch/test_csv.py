"""CSV: what Python's csv module writes is read, and what is written is read back equal by everybody."""

from __future__ import annotations

import csv
import datetime
import math
import pathlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.batch.sources import as_files
from headrace.engine.spark.files import Folder
from headrace.model.badrecords import MALFORMED, WRONG_TYPE
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


NASTY = ["", " ", " a ", "a,b", 'a"b', '"', '""', "a\nb", "a\rb", "a\r\nb", "\n", '"\n', "\\", "a\\", '\\"', '\\\\"']
NASTY += ["#x", "\ufeff", "\t", ";", "'", "NULL", "NA", "é", "𝒳", "\u2028", "\x85", "x\x0by"]
texts = st.sampled_from(NASTY) | st.text("\"',;\\ \t\r\n#aé𝒳", max_size=6)
formats = st.sampled_from(
    [
        {},
        {"separator": ";", "null": "NULL"},
        {"separator": "\t", "quote": "'"},
        {"header": False, "null": "\\N"},
        {"encoding": "utf-16", "null": "-"},
        {"escape": "\\"},
    ]
)


def parts_of(out: pathlib.Path) -> list[pathlib.Path]:
    return sorted(out.glob("**/part-*.csv"))


def as_python_reads(out: pathlib.Path, options: dict[str, Any]) -> list[list[str]]:
    rows = []
    for part in parts_of(out):
        with part.open(encoding=options.get("encoding", "utf-8"), newline="") as file:
            dialect = {"delimiter": options.get("separator", ","), "quotechar": options.get("quote", '"')}
            read = list(csv.reader(file, strict=True, **dialect))
            rows += read[1:] if options.get("header", True) else read
    return rows


def as_pandas_reads(out: pathlib.Path, options: dict[str, Any]) -> list[list[str]]:
    rows = []
    for part in parts_of(out):
        frame = pd.read_csv(
            part,
            sep=options.get("separator", ","),
            quotechar=options.get("quote", '"'),
            header=0 if options.get("header", True) else None,
            encoding=options.get("encoding", "utf-8"),
            dtype=str,
            keep_default_na=False,
        )
        rows += frame.values.tolist()
    return rows


@pytest.mark.slow("each example writes and reads files")
@given(st.lists(st.tuples(texts | st.none(), texts | st.none()), min_size=20, max_size=80), formats)
@examples(10, phases=[Phase.generate])  # each writes and reads many rows
def test_what_is_written_is_read_back_by_everybody(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[str | None, str | None]],
    options: dict[str, Any],
) -> None:
    out, null = tmp_path_factory.mktemp("csv") / "out", options.get("null", "")
    multi_line = options.get("header", True)  # where it is safe to say how lines end
    if not multi_line:
        drawn = [row for row in drawn if not any({*"\r\n"} & {*(each or "")} for each in row)]
    rows = [(number, *(None if each == null != "" else each for each in row)) for number, row in enumerate(drawn)]
    p = hr.Pipeline(spark=spark)
    created = p | hr.Create(rows).with_output_types(tuple[int, str, str])
    created | hr.Select(number="_1", odd="_2", even="_3") | hr.WriteCsv(str(out), **options)
    p.run().wait()
    written = sorted([str(number), odd or "", even or ""] for number, odd, even in rows)
    spelled = sorted([str(number), *(null if each is None else each for each in row)] for number, *row in rows)
    if "escape" not in options:  # which others take for one outside of quotes, too
        assert sorted(as_python_reads(out, options)) == (spelled if null else written)
        assert sorted(as_pandas_reads(out, options)) == (spelled if null else written)
    p = hr.Pipeline(spark=spark)
    source = hr.ReadCsv(str(out), schema="number long, odd string, even string", multi_line=multi_line, **options)
    back = p | source | hr.Collect()
    p.run().wait()
    assert sorted(map(tuple, back), key=lambda row: row[0]) == rows


@pytest.mark.slow("each example writes and reads files")
@given(st.lists(st.tuples(texts, texts), min_size=20, max_size=80), st.sampled_from([True, False]), st.data())
@examples(10, phases=[Phase.generate])
def test_what_python_writes_is_read(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[str, str]],
    multi_line: bool,
    data: st.DataObject,
) -> None:
    """Without multi_line, texts with line breaks are left out of the file."""
    if not multi_line:
        drawn = [row for row in drawn if not {*"\r\n"} & {*"".join(row)}]
    dialect: Any = data.draw(
        st.sampled_from([{}, {"quoting": csv.QUOTE_ALL}, {"lineterminator": "\n"}, {"delimiter": "|"}])
    )
    file = tmp_path_factory.mktemp("csv") / "a.csv"
    with file.open("w", encoding=data.draw(st.sampled_from(["utf-8", "utf-8-sig"])), newline="") as out:
        writer = csv.writer(out, **dialect)
        writer.writerow(["number", "odd", "even"])
        writer.writerows([number, *row] for number, row in enumerate(drawn))
    p = hr.Pipeline(spark=spark)
    options: dict[str, Any] = {"separator": dialect.get("delimiter", ","), "multi_line": multi_line}
    rows = p | "rows" >> hr.ReadCsv(str(file), schema="number long, odd string, even string", **options) | hr.Collect()
    handle = p.run()
    assert handle.wait().bad == {}
    empty = "" if dialect.get("quoting") else None  # Python writes an empty text without quotes, unless it quotes all
    broken = "\r\n" if "lineterminator" in dialect else "\n"  # how a break that is also the end of lines is read
    expected = [(number, *(each.replace("\r\n", broken) or empty for each in row)) for number, row in enumerate(drawn)]
    assert sorted(map(tuple, rows), key=lambda row: row[0]) == expected


def test_ordinary_csv_is_read(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.csv").write_text('id,name,country\n99,"Cust ""99"", Ltd",IT\n7,plain, x \n')
    customers = p | hr.ReadCsv(str(tmp_path), schema="id long, name string, country string") | hr.Collect()
    inferred = p | hr.ReadCsv(str(tmp_path)) | hr.Collect()
    p.run().wait()
    assert sorted(map(tuple, customers)) == [(7, "plain", " x "), (99, 'Cust "99", Ltd', "IT")]
    assert sorted(map(tuple, inferred)) == sorted(map(tuple, customers))


def test_options_of_reading(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    files = {
        "german": ("name;n\nM\xfcller;1\nNA;NA\n;\n", "latin-1"),
        "escaped": ('a\\,"b\\"c",1\n"d\\\\",e,\n', "utf-8"),
        "unquoted": ('name,n\n5" pipe,1\n"x,\n', "utf-8"),
        "wide": ("name,n\n\xe9\n".replace("\xe9\n", '"\xe9\n",1\n'), "utf-16"),
    }
    for name, (text, encoding) in files.items():
        (tmp_path / name).write_text(text, encoding)
    schema = "name string, n long"
    found = {
        "german": p | hr.ReadCsv(f"{tmp_path}/german", schema=schema, separator=";", encoding="latin-1", null="NA"),
        "escaped": p | hr.ReadCsv(f"{tmp_path}/escaped", schema=f"a string, {schema}", header=False, escape="\\"),
        "unquoted": p | hr.ReadCsv(f"{tmp_path}/unquoted", schema=schema, quote=None),
        "wide": p | hr.ReadCsv(f"{tmp_path}/wide", schema=schema, encoding="utf-16", multi_line=True),
    }
    collected = {name: rows | f"collect {name}" >> hr.Collect() for name, rows in found.items()}
    p.run().wait()
    rows = {name: sorted(map(tuple, rows), key=str) for name, rows in collected.items()}
    assert rows["german"] == [("", None), ("M\xfcller", 1), (None, None)]
    assert rows["escaped"] == [("a\\", 'b"c', 1), ("d\\", "e", None)]
    assert rows["unquoted"] == [('"x', None), ('5" pipe', 1)]
    assert rows["wide"] == [("\xe9\n", 1)]


def test_types_are_written_and_read_exactly(p: hr.Pipeline, spark: SparkSession, tmp_path: pathlib.Path) -> None:
    columns = {
        "n": "9223372036854775807L",
        "x": "double('0.1')",
        "nan": "double('NaN')",
        "inf": "double('-Infinity')",
        "d": "cast('123.450' as decimal(9,3))",
        "ok": "true",
        "day": "date '2026-02-28'",
        "at": "timestamp '2026-02-28 12:00:00.123456 UTC'",
        "local": "timestamp_ntz '2026-02-28 12:00:00.000001'",
        "none": "cast(null as int)",
    }
    p | hr.Create([1]) | hr.Select(**columns) | hr.WriteCsv(str(tmp_path / "out"))
    p.run().wait()
    p = hr.Pipeline(spark=spark)
    schema = "n long, x double, nan double, inf double, d decimal(9,3), ok boolean, day date, at timestamp, "
    back = p | hr.ReadCsv(str(tmp_path / "out"), schema=f"{schema}local timestamp_ntz, none int") | hr.Collect()
    p.run().wait()
    (row,) = back
    assert math.isnan(row.nan)
    at = datetime.datetime(2026, 2, 28, 12, 0, 0, 123456)
    assert (row.n, row.x, row.inf, row.d, row.ok, row.day) == (
        2**63 - 1,
        0.1,
        -math.inf,
        Decimal("123.450"),
        True,
        datetime.date(2026, 2, 28),
    )
    assert row.at.astimezone(datetime.UTC).replace(tzinfo=None) == at
    assert (row.local, row.none) == (at.replace(microsecond=1), None)


def test_bad_records_as_they_stand_in_the_file(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    several = "its quotes are not in pairs: a record of several lines needs multi_line=True, and where quotes mean "
    several += "nothing, quote=None"
    bad = {
        '"a",x,""': (WRONG_TYPE, "'n' is no bigint: x"),
        "b,1": (MALFORMED, "it is not a record of 3 fields"),
        "c,1,12:00": (WRONG_TYPE, "'at' is no timestamp: 12:00"),
        '5,1,"two': (MALFORMED, several),
        'lines",1,2026-01-01': (MALFORMED, several),
        "\x00,1,2026-01-01": (MALFORMED, "it has the character NUL"),
    }
    good = ['"",,', "ok, 1 ,2026-01-01", 'q,"",""']
    (tmp_path / "a.csv").write_text("\r\n".join(["user,n,at", *good, *bad, ""]))
    rows = p | hr.ReadCsv(str(tmp_path), schema="user string, n long, at timestamp").with_exception_handling()
    fine, dead = rows.main | hr.Collect(), rows.dead_letters | hr.Collect()
    p.run().wait()
    assert sorted((row.user, row.n) for row in fine) == [("", None), ("ok", 1), ("q", None)]
    assert {letter.element: (letter.error, letter.message) for letter in dead} == bad


def test_nothing_is_warned_of(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Spark's reader would warn of each file whose header is not the name of the column that its lines become."""
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "a.csv").write_text('"id","odd.`name`"\n1,amy\n')
    p = hr.Pipeline(spark=spark)
    p | "rows" >> hr.ReadCsv(str(tmp_path), schema="id long, name string") | hr.Collect()
    (node, *_) = p.graph()
    assert isinstance(node.transform, hr.ReadCsv)
    assert as_files(spark, node, node.transform).data.columns == ['"id","odd.`name`"', "day"]
    p.run().wait()
    inferred = hr.Pipeline(spark=spark)
    rows = inferred | hr.ReadCsv(str(tmp_path)) | hr.Collect()
    inferred.run().wait()
    assert sorted(map(tuple, rows)) == [(1, "amy", 1), (1, "amy", 2)]


def test_a_schema_in_another_order_than_the_header_is_refused(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.csv").write_text("City,id,name\nRome,1,amy\n")
    p | "sales" >> hr.ReadCsv(str(tmp_path), schema="id long, place string, name string") | hr.Collect()
    with pytest.raises(
        hr.PipelineError, match=r"'sales'.*'id' is number 1 in the schema and number 2 in the header \(City, id"
    ):
        p.run().wait()


@pytest.mark.parametrize(
    ("rows", "select", "options", "message"),
    [
        ([("NA", 1)], {"a": "_1", "b": "_2"}, {"null": "NA"}, "'NA' in 'a' would be null; choose another null="),
        ([(None, 1)], {"a": "_1"}, {}, "a null would be a blank line, which readers skip"),
        ([(" ", 1)], {"a": "_1"}, {"null": "NA"}, "white space would be a blank line"),
        ([("\u20ac", 1)], {"a": "_1"}, {"encoding": "latin-1"}, "'a' has characters that latin-1 has not"),
        ([("x", 1)], {"\u20ac": "_1"}, {"encoding": "ascii"}, "the name of the column '\u20ac'.*encoding='utf-8'"),
        ([("a\x00", 1)], {"a": "_1"}, {}, "'a' has the character NUL"),
        ([("x", 1)], {"a": "array(_1)"}, {}, "'a' is array<string>, which CSV has no form for"),
        ([("x", 1)], {"a": "binary(_1)"}, {}, "'a' is bytes; make it text"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(
    p: hr.Pipeline, tmp_path: pathlib.Path, rows: Any, select: dict[str, str], options: dict[str, Any], message: str
) -> None:
    created = p | hr.Create(rows).with_output_types(tuple[str, int])
    created | hr.Select(**select) | "save" >> hr.WriteCsv(str(tmp_path / "out"), **options)
    with pytest.raises(hr.HeadraceError, match=message):
        p.run().wait()
    assert not (tmp_path / "out").exists()


@pytest.mark.slow("four runs of a stream")
def test_a_stream_writes_each_batch_once_with_a_manifest(
    spark: SparkSession, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is aborted before a batch has its name, and again after that; the last run has nothing to add."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text('name,n\n"a ""b"", c",1\nd,2\n')
    rename, aborts = Folder.rename, ["before", "after"]

    def aborting(folder: Folder, other: Folder) -> None:
        moment = aborts.pop(0) if aborts and "batch-" in str(other) else None
        if moment != "before":
            rename(folder, other)
        if moment is not None:
            raise OSError(f"aborted {moment}")

    monkeypatch.setattr(Folder, "rename", aborting)
    failures = []
    for _ in range(4):
        p = hr.Pipeline(spark=spark)
        read = p | hr.ReadCsv(str(tmp_path / "in"), schema="name string, n long")
        read | hr.WriteCsv(str(tmp_path / "out"), separator=";")
        try:
            p.run(stream=True, checkpoint=str(tmp_path / "checkpoint")).wait()
        except Exception as error:
            failures += [moment for moment in ("before", "after") if f"aborted {moment}" in str(error)]
    assert failures == ["before", "after"]
    assert sorted(as_python_reads(tmp_path / "out", {"separator": ";"})) == [['a "b", c', "1"], ["d", "2"]]
    manifest = hr.read_manifest(str(tmp_path / "out"))
    assert (manifest.rows, manifest.verify()) == (2, [])


def test_a_file_that_comes_into_a_stream_later_has_its_header_left_out(
    spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"name,n\n{name},1\n")
    p = hr.Pipeline(spark=spark)
    names = p | hr.ReadCsv(str(tmp_path), schema="name string, n string", multi_line=False) | hr.Collect()
    p.run(stream=True, max_files_per_batch=1).wait()
    assert sorted(row.name for row in names) == ["a", "b"]


@pytest.mark.parametrize("stream", [False, True])
def test_windows_and_panes_are_columns(spark: SparkSession, tmp_path: pathlib.Path, stream: bool) -> None:
    p = hr.Pipeline(spark=spark)
    words = p | hr.Create([hr.TimestampedValue(("a", 1), 61)]) | hr.WindowInto(hr.FixedWindows(60))
    words | hr.GroupBy("_1").aggregate(n=hr.sum("_2")) | hr.WriteCsv(str(tmp_path / "out"))
    p.run(stream=stream).wait()
    (written,) = [part.read_text() for part in parts_of(tmp_path / "out") if part.read_text().count("\n") > 1]
    header, line = written.splitlines()
    row = dict(zip(header.split(","), line.split(","), strict=True))
    assert (row["_1"], row["n"]) == ("a", "1")
    assert (row["window_start"], row["window_end"]) == ("1970-01-01T00:01:00Z", "1970-01-01T00:02:00Z")
    assert (row["pane"], row["timing"]) == ("0", "on_time")
