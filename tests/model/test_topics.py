from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.log import Log
from headrace.model.errors import PipelineError
from headrace.model.topics import Address, address


def test_a_name_is_of_the_log_that_is_named_or_set_or_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_LOG", raising=False)
    assert address("visits") == Address("visits", "headrace-log", None)
    monkeypatch.setenv("HEADRACE_LOG", "/var/log/topics")
    assert address("visits").log == "/var/log/topics"
    assert address("visits", log="other-log").log == "other-log"


@pytest.mark.parametrize(
    ("uri", "where"),
    [
        ("topic:here/visits", Address("visits", "here", None)),
        ("topic:///data/log/page%20views", Address("page views", "/data/log", None)),
        ("kafka://a:9092,b:9092/visits", Address("visits", None, "a:9092,b:9092")),
    ],
)
def test_uris(uri: str, where: Address) -> None:
    assert address(uri) == where


@pytest.mark.parametrize("uri", ["", "a/b", "kafka://host:9092", "kafka:/visits", "topic:visits", "mqtt://h/t", None])
def test_a_wrong_uri_is_refused_with_the_supported_ones(uri: Any) -> None:
    with pytest.raises(PipelineError, match="kafka://HOST:PORT/NAME"):
        address(uri)


def test_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(PipelineError) as refused:
        address("kafka://me:secret@host:9092/visits")
    assert "secret" not in str(refused.value)


def test_two_places_for_one_topic_are_refused() -> None:
    with pytest.raises(PipelineError, match="give one of them"):
        address("kafka://host:9092/visits", log="here")


def test_a_topic_is_not_looked_at_before_the_pipeline_runs(tmp_path: Path) -> None:
    read = hr.Pipeline() | hr.ReadTopic("later", log=str(tmp_path))
    assert read.element_type == "the topic's values"
    assert list(tmp_path.iterdir()) == []


def test_with_an_end_it_is_bounded(tmp_path: Path) -> None:
    Log(tmp_path).create("visits")
    assert not (hr.Pipeline() | hr.ReadTopic("visits", log=str(tmp_path))).bounded
    assert (hr.Pipeline() | hr.ReadTopic("visits", log=str(tmp_path), end="latest")).bounded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "yesterday"}, "start must be 'earliest', 'latest' or a time"),
        ({"end": "earliest"}, "would read nothing"),
        ({"watermark": "10 seconds"}, "must be a policy"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        hr.ReadTopic("visits", **options)


def test_a_key_is_a_column_or_a_function() -> None:
    with pytest.raises(PipelineError, match="key must be a column"):
        hr.WriteTopic("visits", key=3)  # type: ignore[arg-type]


def test_start_offsets_are_integers() -> None:
    for topic in ("visits", "kafka://127.0.0.1:9092/visits"):
        assert hr.ReadTopic(topic, start={0: 25, 1: 7}).start == {0: 25, 1: 7}
        for start in ({0: -1}, {0: "latest"}, {"0": 1}):
            with pytest.raises(
                hr.PipelineError, match=r"start must be an offset for each partition, e\.g\. \{0: 25, 1: 7\}"
            ):
                hr.ReadTopic(topic, start=start)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"format": "xml", "registry": "http://h"}, "format must be 'avro' or 'protobuf', got 'xml'"),
        ({"format": "avro"}, "format and registry belong together; give registry='http://HOST:PORT', too"),
        ({"registry": "http://h"}, "format and registry belong together; give format='avro' or 'protobuf', too"),
        ({"format": "avro", "registry": "http://ann:hunter2@h"}, "url has no user or password, got one for 'h'"),
        ({"format": "avro", "registry": "h:8081"}, "url must be http://HOST:PORT or https://HOST:PORT, got 'h:8081'"),
        (
            {"format": "avro", "key_format": "avro", "registry": "http://h"},
            "is for a column of keys; name it with key=",
        ),
        ({"key": "user"}, "key='user' is a column, but values have none; give schema=, or format="),
        ({"key": "user", "schema": "user string", "key_format": "avro", "registry": "http://h"}, "a format, too; give"),
    ],
)
def test_formats_keys_and_registries_that_do_not_go_together(options: dict[str, Any], match: str) -> None:
    with pytest.raises(hr.PipelineError, match=match) as refused:
        hr.ReadTopic("kafka://h:1/visits", **options)
    assert "hunter2" not in str(refused.value)


def test_embedded_topics_have_no_formats_and_no_column_of_keys() -> None:
    with pytest.raises(hr.PipelineError, match="format='avro' is for topics of Kafka, but this is topic:"):
        hr.WriteTopic("visits", format="avro", registry="http://h")
    with pytest.raises(hr.PipelineError, match="key='user' is for topics of Kafka, but this is topic:"):
        hr.ReadTopic("visits", schema="user string", key="user")


def test_a_uri_may_name_the_format_and_the_registry() -> None:
    read: Any = hr.Read("kafka://h:1/visits?format=avro&registry=http://127.0.0.1:8081&key=user&key_format=avro")
    assert (read.format, read.key_format, read.key) == ("avro", "avro", "user")
    assert read.registry == hr.SchemaRegistry("http://127.0.0.1:8081")
