"""Tests that the element types of topics are looked up when a pipeline is planned. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.engine.plan.topictypes import with_topic_types
from headrace.log import Log


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
        with pytest.raises(hr.PipelineError, match=r"^'read' \(.*headrace topic create nothing"):
            refused()


def test_tables_are_checked_when_the_topic_is_known(tmp_path: Path) -> None:
    p = hr.Pipeline()
    p | read(tmp_path, "bytes") | hr.WriteTable("sqlite:///visits.db", "visits", mode="append")
    refused(p, "have no column names")


def test_columns_are_checked_when_the_topic_is_known(tmp_path: Path) -> None:
    p = hr.Pipeline()
    p | "read" >> read(tmp_path, "json") | hr.Select("user")
    refused(p, "it needs columns, but 'read'")


def test_dead_letters_of_records_that_cannot_be_bad_are_refused(tmp_path: Path) -> None:
    p = hr.Pipeline()
    p | "read" >> read(tmp_path, "user string", schema=Visit).with_exception_handling()
    refused(p, r"^'read' \(.*none of its records can be bad")


def read(log: Path, values: str, **options: Any) -> hr.ReadTopic:
    Log(log).create("visits", values=values)
    return hr.ReadTopic("visits", log=str(log), end="latest", **options)


def refused(pipeline: hr.Pipeline, message: str) -> None:
    with pytest.raises(hr.PipelineError, match=message):
        pipeline.explain()
