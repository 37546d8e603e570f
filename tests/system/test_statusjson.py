"""The status of a topic, also while nobody knows how far it is."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

import headrace as hr
from headrace.engine.handle import SourceStatus, StreamStatus
from headrace.system.statusdisplay import status_tables
from headrace.system.statusjson import topic_status, view_status
from headrace.views.offsets import MicroBatch
from headrace.views.stores import Store


def feed(**answers: Any) -> Any:
    return SimpleNamespace(**{name: (lambda found=found: found) for name, found in answers.items()})


def test_who_reads_a_topic_and_how_far() -> None:
    groups = {"master": {0: 1}, "hits-0a1b2c3d-topic": {0: 2}, "billing": {0: 4, 1: 3}}
    there = feed(ends={0: 9, 1: 5}, starts={0: 2, 1: 0}, groups=groups)
    status = topic_status(there, archived={0: 6}, rate=2.5, read={"hits": {0: 9, 1: 4}})
    assert status["partitions"] == [{"partition": 0, "start": 2, "end": 9}, {"partition": 1, "start": 0, "end": 5}]
    assert {who: group["lag"] for who, group in status["groups"].items()} == {"hits": 1, "archive": 8, "billing": 7}
    assert (status["records_per_second"], status["error"]) == (2.5, None)


@pytest.mark.parametrize("sources", [{"topic visits": SourceStatus()}, {"topic visits": SourceStatus(lag=0)}, {}])
def test_a_view_is_as_far_behind_as_its_answers_are(sources: dict[str, SourceStatus]) -> None:
    """Whatever its stream has begun to read, or not reported yet."""

    @hr.view(hr.Topic("visits", schema="user string"))
    def hits(events: Any) -> Any:
        return events | hr.GroupBy("user").aggregate(n=hr.count())

    store = Store("sqlite:///:memory:")
    stored = store.view(hits.layout())
    stored.add(MicroBatch("s", 0, {0: 0}, {0: 5}), [])
    handle = SimpleNamespace(status=lambda: StreamStatus(sources=sources), metrics=dict)
    layer = SimpleNamespace(view=hits, pipeline=hr.Pipeline())
    speed = cast(Any, SimpleNamespace(handle=handle, layer=layer, state="running", error=None))
    there = feed(ends={0: 3_005}, starts={0: 0}, groups={})
    topic = topic_status(there, archived={}, rate=None, read={"hits": stored.progress().reached or {}})
    assert view_status(speed, stored, topic)["lag"] == 3_000
    away = topic_status(cast(Any, SimpleNamespace()), archived={}, rate=None, read={"hits": {}})
    assert view_status(speed, stored, away)["lag"] is None
    store.close()


def test_brokers_that_are_away_are_told_and_the_rest_is_known() -> None:
    def away() -> Any:
        raise OSError("no broker answers at 127.0.0.1:9")

    status = topic_status(cast(Any, SimpleNamespace(ends=away)), archived={0: 6}, rate=2.5, read={"hits": {}})
    assert (status["partitions"], status["archived"], status["error"]) == (
        [],
        {0: 6},
        "no broker answers at 127.0.0.1:9",
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(status_tables({"views": {}, "topics": {"visits": status}, "dead_letters": {}, "jobs": []}))
    assert "topic visits: no broker answers at 127.0.0.1:9" in console.export_text()
