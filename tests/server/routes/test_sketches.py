"""Sketches of a view over HTTP: accumulators of batch and speed are merged, numbers are numbers, sketches Base64."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx
import pytest

import headrace as hr
from headrace.log import Log
from headrace.server import Server, Service
from headrace.views.declare.app import App
from headrace.views.declare.layout import Partial
from headrace.views.stores import Store
from tests.server.conftest import HOUR, LIMITS, feed, publish, visits


@hr.view(visits, window=hr.FixedWindows("1 hour"))
def sketched(events: hr.PCollection) -> hr.PCollection:
    return events | hr.GroupBy("url").aggregate(
        users=hr.theta("user"),
        visits=hr.count_min("user"),
        often=hr.frequency("user", of=["ann", "eve"]),
        uneven=hr.second_moment("user"),
        seen=hr.bloom("user", items=100),
        some=hr.sample("user", 10),
    )


def row(url: str, *users: str) -> Partial:
    fns = [each.fn for each in sketched.aggregate.aggregations.values()]
    return Partial((url,), 0, HOUR, tuple(fn.dump(fn.add_all(fn.zero(), users)) for fn in fns))


def test_sketches_of_batch_and_speed_are_merged(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/views.db")
    service = Service.of(App.of({"sketched": sketched}), store, Log(tmp_path / "log"))
    view = service.views["sketched"]
    feed(view, row("a", "ann", "bob"))
    publish(view, row("a", "ann", "bob"))
    many = [f"user {number}" for number in range(1500)]
    feed(view, row("a", "ann", "cleo"), row("b", "ann", *many))
    with Server(service, port=0, limits=LIMITS) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        a, b = client.get("/views/sketched").json()["rows"]
        (both,) = client.get("/views/sketched", params={"by": "", "windows": "merged"}).json()["rows"]
    store.close()

    assert (a["values"]["often"], a["values"]["uneven"], sorted(a["values"]["some"])) == (
        [2, 0],
        6.0,
        ["ann", "ann", "bob", "cleo"],
    )
    assert (a["approximate"], b["approximate"]) == (["seen"], ["visits", "often", "uneven", "seen"])
    sketches = [
        {name: base64.b64decode(each["values"][name]) for name in ("users", "visits", "seen")} for each in (a, b)
    ]
    in_a, in_b = (hr.ThetaSketch(each["users"]) for each in sketches)
    assert (in_a.estimate, (in_a & in_b).estimate, (in_a - in_b).estimate) == (3, 1, 2)
    assert base64.b64decode(both["values"]["users"]) == bytes(in_a | in_b)
    assert hr.CountMinSketch(sketches[0]["visits"]).frequency("ann") == 2
    assert hr.CountMinSketch(sketches[1]["visits"]).frequency("user 7") in (1, 2)
    assert "cleo" in hr.BloomFilter(sketches[0]["seen"]) and "dan" not in hr.BloomFilter(sketches[0]["seen"])
    assert both["values"]["uneven"] == pytest.approx(3**2 + 1502, rel=0.1)
    assert len(both["values"]["some"]) == 10
