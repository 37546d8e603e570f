from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.engine.plan.topictypes import with_topic_types
from headrace.log import Log
from headrace.model.errors import PipelineError
from headrace.model.topics import Address, address


def test_a_name_is_of_the_log_that_is_named_or_set_or_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_LOG", raising=False)
    assert address("visits") == Address("visits", "headrace-log", None)
    monkeypatch.setenv("HEADRACE_LOG", "/var/log/topics")
    assert address("visits").log == "/var/log/topics"
    assert address("visits", log="mine").log == "mine"


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
def test_a_wrong_uri_says_what_is_supported(uri: Any) -> None:
    with pytest.raises(PipelineError, match="kafka://HOST:PORT/NAME"):
        address(uri)


def test_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(PipelineError) as refused:
        address("kafka://me:secret@host:9092/visits")
    assert "secret" not in str(refused.value)


def test_two_places_for_one_topic_are_refused() -> None:
    with pytest.raises(PipelineError, match="give one of them"):
        address("kafka://host:9092/visits", log="here")


class Visit(NamedTuple):
    user: str


@pytest.mark.parametrize(
    ("values", "schema", "element_type"),
    [
        ("user string", None, "rows"),
        ("user string", Visit, Visit),
        ("json", None, None),
        ("json", "user string", "rows"),
        ("json", Visit, Visit),
        ("bytes", None, bytes),
    ],
)
def test_elements_are_as_the_topic_and_the_schema_say(
    tmp_path: Path, values: str, schema: Any, element_type: object
) -> None:
    Log(tmp_path).create("visits", values=values)
    p = hr.Pipeline()
    p | hr.ReadTopic("visits", log=str(tmp_path), schema=schema) | hr.Filter(bool)
    assert [node.outputs[0].element_type for node in with_topic_types(p.graph())] == [element_type] * 2


def test_a_topic_is_not_looked_at_before_the_pipeline_runs(tmp_path: Path) -> None:
    read = hr.Pipeline() | hr.ReadTopic("later", log=str(tmp_path))
    assert read.element_type == "the topic's values"
    assert list(tmp_path.iterdir()) == []


def test_side_inputs_get_the_types_of_their_topics(tmp_path: Path) -> None:
    Log(tmp_path).create("visits", values="user string")
    p = hr.Pipeline()
    users = p | "users" >> hr.ReadTopic("visits", log=str(tmp_path), end="latest")
    p | hr.Create([1]) | hr.Map(lambda n, users: n, hr.AsList(users))
    graph = with_topic_types(p.graph())
    assert graph.nodes[-1].transform.side_inputs() == graph.nodes[0].outputs
    assert graph.nodes[0].outputs[0].element_type == "rows"


def test_a_topic_that_does_not_exist_is_refused_when_it_is_read(tmp_path: Path) -> None:
    p = hr.Pipeline()
    p | "read" >> hr.ReadTopic("nothing", log=str(tmp_path))
    for refused in (p.run, p.explain):
        with pytest.raises(PipelineError, match=r"^'read' \(.*headrace topic create nothing"):
            refused()


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


def test_offsets_to_start_at_are_whole_numbers() -> None:
    for topic in ("visits", "kafka://127.0.0.1:9092/visits"):
        assert hr.ReadTopic(topic, start={0: 25, 1: 7}).start == {0: 25, 1: 7}
        for start in ({0: -1}, {0: "latest"}, {"0": 1}):
            with pytest.raises(
                hr.PipelineError, match=r"start must be an offset for each partition, e\.g\. \{0: 25, 1: 7\}"
            ):
                hr.ReadTopic(topic, start=start)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "apply", "message"),
    [
        (
            "bytes",
            lambda read: read | hr.WriteTable("sqlite:///visits.db", "t", mode="append"),
            "gives elements without names",
        ),
        ("json", lambda read: read | hr.Select("user"), "it needs columns, but 'read'"),
        ("user string", lambda read: read, "none of its records can be bad"),
    ],
)
def test_what_does_not_go_with_the_values_of_a_topic_is_refused_when_it_is_planned(
    tmp_path: Path, values: str, apply: Any, message: str
) -> None:
    Log(tmp_path).create("visits", values=values)
    read = hr.ReadTopic("visits", log=str(tmp_path), end="latest", schema=None if values != "user string" else Visit)
    p = hr.Pipeline()
    if values == "user string":
        p | "read" >> read.with_exception_handling()
    else:
        apply(p | "read" >> read)
    with pytest.raises(PipelineError, match=message):
        p.explain()
