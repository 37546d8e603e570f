"""Tests sources and sinks by URI: which transform each gives, and the errors for wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.model.sinks import WriteFiles
from headrace.model.sources import FileSource, ReadRows
from headrace.model.times import instant
from headrace.model.topics import ReadTopic, WriteTopic

URL = "postgresql://amy:s3cret@db:5432/shop"


@pytest.mark.parametrize(
    ("uri", "kind", "path"),
    [
        ("text:data/*.txt", hr.ReadText, "data/*.txt"),
        ("json:/data/visits", hr.ReadJson, "/data/visits"),
        ("csv:///data/visits", hr.ReadCsv, "/data/visits"),
        ("parquet:a%20b/part-%3F.parquet", hr.ReadParquet, "a b/part-?.parquet"),
        ("text:data/[ab]{c,d}#1.txt", hr.ReadText, "data/[ab]{c,d}#1.txt"),
        ("parquet+s3a://bucket/visits/", hr.ReadParquet, "s3a://bucket/visits/"),
        ("json+hdfs://name:8020/visits", hr.ReadJson, "hdfs://name:8020/visits"),
        ("files:data/*.xml", hr.ReadFiles, "data/*.xml"),
        ("text+file:///data/visits", hr.ReadText, "file:///data/visits"),
    ],
)
def test_files(uri: str, kind: type, path: str) -> None:
    source = hr.Read(uri)
    assert type(source) is kind
    assert isinstance(source, FileSource)
    assert source.paths == [path]


def test_options_are_text_in_the_uri_or_arguments() -> None:
    policy = hr.BoundedDisorder("10 seconds")
    source = hr.Read("csv:in?schema=user+string,+ts timestamp&header=false", event_time="ts", watermark=policy)
    assert isinstance(source, hr.ReadCsv)
    assert (source.schema, source.csv.header) == ("user string, ts timestamp", False)
    assert (source.event_time, source.watermark) == ("ts", policy)
    sink = hr.Write("parquet:out?existing=replace")
    assert isinstance(sink, hr.WriteParquet)
    assert (sink.path, sink.existing) == ("out", "replace")


def test_every_source_and_sink() -> None:
    assert str(hr.Read("rate:100")) == "Rate(100 a second)"
    assert str(hr.Read("tcp://127.0.0.1:9999")) == "ReadSocket('tcp://127.0.0.1:9999')"
    assert str(hr.Read("tcp://[::1]:9999")) == "ReadSocket('tcp://[::1]:9999')"
    topic = hr.Read("topic:///data/log/visits?start=latest&end=2026-01-01T00:00:00Z")
    assert isinstance(topic, ReadTopic)
    assert (str(topic), topic.start) == ("ReadTopic('topic:/data/log/visits')", "latest")
    assert topic.end == instant("2026-01-01T00:00:00Z")
    kafka = hr.Read("kafka://127.0.0.1:9092/visits?event_time=ts", schema="ts timestamp")
    assert isinstance(kafka, ReadTopic)
    assert (str(kafka), kafka.event_time) == ("ReadTopic('kafka://127.0.0.1:9092/visits')", "ts")
    for uri, kind in (("text:out", hr.WriteText), ("json:out", hr.WriteJson), ("parquet+s3a://b/out", hr.WriteParquet)):
        sink = hr.Write(uri)
        assert type(sink) is kind
        assert isinstance(sink, WriteFiles)
    for uri in ("topic:log/visits?key=user", "kafka://h:1/visits?key=user"):
        written = hr.Write(uri, timestamp="ts")
        assert isinstance(written, WriteTopic)
        assert (written.key, written.timestamp) == ("user", "ts")


def test_tables() -> None:
    sink = hr.Write("sqlite:///counts.db?table=counts&key=word,day&mode=upsert")
    assert str(sink) == "WriteTable('sqlite+pysqlite:///counts.db', 'counts', key=['word', 'day'], mode='upsert')"
    assert isinstance(hr.Write("postgresql+psycopg://db/shop?table=counts"), hr.WriteTable)
    sink = hr.Write(f"{URL}?sslmode=require&application_name=a%26b", table="counts", key=["word"], mode="upsert")
    assert isinstance(sink, hr.WriteTable)
    assert dict(sink.url.query) == {"sslmode": "require", "application_name": "a&b"}
    assert (sink.url.password, sink.url.port, sink.table) == ("s3cret", 5432, "counts")
    assert "s3cret" not in str(sink)


def test_tables_are_sources_too() -> None:
    source = hr.Read("sqlite:///shop.db?table=sales&partition_column=id&partitions=4&event_time=at")
    assert isinstance(source, hr.ReadTable)
    assert str(source) == "ReadTable('sqlite+pysqlite:///shop.db', 'sales')"
    assert (source.partition_column, source.partitions, source.event_time) == ("id", 4, "at")
    query = hr.Read(f"{URL}?sslmode=require", query="SELECT 1 AS n;")
    assert isinstance(query, hr.ReadTable)
    assert (query.query, dict(query.url.query), "s3cret" in str(query)) == (
        "SELECT 1 AS n",
        {"sslmode": "require"},
        False,
    )
    with pytest.raises(hr.PipelineError, match="partitions must be a number, got 'many'"):
        hr.Read("sqlite:///shop.db?table=sales&partition_column=id&partitions=many")
    sink = hr.Write("json:out?window=false")
    assert isinstance(sink, hr.WriteJson)
    assert sink.window is False


SOURCES = r"There are text:PATH, .*kafka://HOST:PORT/NAME, tcp://HOST:PORT, rate:NUMBER$"
SINKS = r"There are text:PATH, .*sqlite:///FILE\?table=NAME, postgresql://"


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (
            lambda: hr.Read("txet:data"),
            rf"^Read\('txet:data'\): there is no source txet:, did you mean text:\? {SOURCES}",
        ),
        (lambda: hr.Read("parqet+s3a://b/x"), rf"there is no source parqet\+s3a:, did you mean parquet:\? {SOURCES}"),
        (lambda: hr.Read("kafak://h:1/visits"), "did you mean kafka:"),
        (lambda: hr.Read("jsonl:data"), "did you mean json:"),
        (lambda: hr.Read("http://example.com/x"), rf"there is no source http:\. {SOURCES}"),
        (lambda: hr.Read("data/visits.json"), r"in which format; did you mean 'json:data/visits.json'\?"),
        (lambda: hr.Read("s3a://b/visits.parquet"), r"did you mean 'parquet\+s3a://b/visits.parquet'\?"),
        (lambda: hr.Read("visits"), rf"it has no scheme\. {SOURCES}"),
        (lambda: hr.Write("tcp://h:1"), rf"tcp: is only a source, for hr.Read\. {SINKS}"),
        (lambda: hr.Write("rate:1"), rf"rate: is only a source, for hr.Read\. {SINKS}"),
        (lambda: hr.Write("postgres://h/d?table=x"), r"no sink postgres:, did you mean postgresql:\?"),
        (lambda: hr.Read(7), "Read takes a URI, got 7; there are text:PATH"),  # type: ignore[arg-type]
        (lambda: hr.Read("text://data/x.txt"), "has no host; write 'text:data/x.txt' or 'text:///data/x.txt'"),
        (lambda: hr.Read("text:"), "it has no path; write for instance 'text:data/'"),
        (lambda: hr.Read("text:data/part-?.txt"), "after . come options such as .* part of a glob is %3F"),
        (lambda: hr.Read("text://[x/a"), "this is not a URI: Invalid IPv6 URL"),
        (
            lambda: hr.Read("json:in?evnt_time=ts"),
            "ReadJson has no option evnt_time, did you mean event_time; there",
        ),
        (lambda: hr.Read("rate:5?x=1"), "Rate has no option x; there are none"),
        (lambda: hr.Read("rate:fast"), "a number of rows per second, as in 'rate:100', got 'fast'"),
        (lambda: hr.Read("rate+x:5"), r"there is no source rate\+x:"),
        (lambda: hr.Read("json:in?event_time=a", event_time="b"), "event_time is in the URI and an argument, too"),
        (lambda: hr.Read("json:in?event_time=a&event_time=b"), "it has the option event_time twice"),
        (lambda: hr.Read("csv:in?header=no"), "header must be true or false, got 'no'"),
        (lambda: hr.Read("json:in?watermark=10s"), "a watermark policy cannot be text"),
        (
            lambda: hr.Write("sqlite:///a.db"),
            r"WriteTable needs the table: \?table=... in the URI, or the arg",
        ),
        (lambda: hr.Write("sqlite:///a.db?table=a", table="b"), "table is in the URI and an argument, too"),
        (lambda: hr.Write("sqlite:///a.db?table=a&key=x", key="y"), "key is in the URI and an argument, too"),
        (lambda: hr.Read("tcp://127.0.0.1"), r"ReadSocket takes tcp://HOST:PORT, .*; got 'tcp://127.0.0.1'"),
        (lambda: hr.ReadSocket("tcp://h:99999"), "takes tcp://HOST:PORT.*: Port out of range"),
        (lambda: hr.ReadSocket("tcp://amy:s3cret@h:1"), "has no user or password, got one for 'h'"),
        (lambda: hr.ReadSocket("udp://h:1"), "takes tcp://HOST:PORT.*got 'udp://h:1'"),
    ],
)
def test_wrong_uris_are_refused_with_the_possible_ones(build: Callable[[], Any], match: str) -> None:
    with pytest.raises(hr.PipelineError, match=match):
        build()


@pytest.mark.parametrize(
    "uri",
    [
        URL,
        f"{URL}?tabel=x&password=s3cret",
        URL.replace("postgresql", "postgrsql"),
        "postgresql://amy:s3cret/s3cret@db/shop",
        "postgresql://amy:s3cret?s3cret@db/shop",
        "http://amy:s3cret@db/shop",
        "kafka://amy:s3cret@db:1/shop",
        "tcp://amy:s3cret@db:1",
        "text://amy:s3cret@db/shop",
        "postgresql://amy:s3cret[@db/shop",
    ],
)
def test_passwords_are_never_shown(uri: str) -> None:
    for make in (hr.Read, hr.Write):
        with pytest.raises(hr.PipelineError) as raised:
            make(uri)
        assert "s3cret" not in str(raised.value)


def test_rows_by_uri_are_rows() -> None:
    assert isinstance(hr.Read("json:in"), ReadRows)
