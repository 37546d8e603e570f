"""Tests which reader a source has, and what a reader knows without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
from headrace.engine.connectors.embeddedreader import EmbeddedReader
from headrace.engine.connectors.kafkareader import KafkaReader
from headrace.engine.connectors.topicreaders import reader_of
from headrace.engine.handle import SourceStatus
from headrace.engine.plan.topictypes import with_topic_types
from headrace.log import Log
from headrace.model.pipeline import Node


def node_of(source: Any) -> Node:
    p = hr.Pipeline()
    p | "read" >> source
    return with_topic_types(p.graph()).nodes[0]


def test_a_source_that_reads_no_topic_has_no_reader() -> None:
    assert reader_of(node_of(hr.Create([1]))) is None


def test_an_embedded_topic(tmp_path: Path) -> None:
    topic = Log(tmp_path).create("visits", partitions=2, values="user string")
    topic.append(1, topic.batch([{"user": "ann"}, {"user": "bob"}, {"user": "ann"}], timestamps=[1, 2, 3]))
    reader = reader_of(node_of(hr.ReadTopic("visits", log=str(tmp_path))))
    assert isinstance(reader, EmbeddedReader)
    assert reader.partitions() == ("0", "1")
    progress = {"startOffset": {"0": 0, "1": 0}, "endOffset": {"0": 0, "1": 2}}
    status = reader.status(SourceStatus(None, None, None), progress, 0.5)
    assert (status.rows, status.rows_per_second, status.offsets, status.lag) == (2, 4, {0: 0, 1: 2}, 1)


def test_a_topic_of_kafka() -> None:
    reader = reader_of(node_of(hr.ReadTopic("kafka://127.0.0.1:9092/visits")))
    assert isinstance(reader, KafkaReader)
    progress = {"endOffset": {"visits": {"0": 3}}, "latestOffset": {"visits": {"0": 5, "1": 4}}}
    status = reader.status(SourceStatus(None, 3, None), progress, 0.5)
    assert (status.rows, status.offsets, status.lag) == (3, {0: 3}, 2)
    assert reader.status(SourceStatus(None, None, None), {"endOffset": None, "latestOffset": None}, 0).offsets == {}
