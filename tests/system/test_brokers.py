"""A system over Kafka: its topic gets partitions, and its broker goes away and comes back; every event counts once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import headrace as hr
from headrace.server import Server
from headrace.system.home import Home
from headrace.system.system import Schedule, System
from headrace.views.declare.app import App
from headrace.views.query.queries import Query
from headrace.views.stores import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.edges.kafka import Broker

SECONDS = 120
visits = hr.Topic("bouncing_visits", schema="url string, ts timestamp", event_time="ts", partitions=2)


@hr.view(visits)
def hits(events: Any) -> Any:
    return events | hr.GroupBy("url").aggregate(n=hr.count())


@contextmanager
def running(spark: SparkSession, path: Path, broker: Broker) -> Iterator[tuple[System, httpx.Client]]:
    """A system over the broker, and a client of its server."""
    home = Home(path)
    store = Store(home.store)
    log = f"kafka://{broker.address}"
    with (
        System(
            App.of({"hits": hits}), home, spark=spark, store=store, log=log, schedule=Schedule(None, None)
        ) as system,
        Server(system.service, port=0) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        yield system, client
    store.close()


def send(broker: Broker, partition: int, count: int) -> None:
    value = json.dumps({"url": "/", "ts": "2026-03-01T09:30:00Z"}).encode()
    broker.send(visits.name, *[(None, value, 7)] * count, partition=partition)


def counted(system: System, query: Query = Query()) -> int:
    return sum(row.values["n"] for row in system.answer("hits", query).rows)


def wait_for(system: System, count: int) -> None:
    """Until so many are counted: clients hear of partitions, and of brokers that are back, after a while."""
    deadline = time.monotonic() + SECONDS
    while (found := _counted_by_now(system)) != count:
        assert found < count, f"{found} were counted of {count}"
        assert time.monotonic() < deadline, system.status()
        time.sleep(0.1)


def _counted_by_now(system: System) -> int:
    system.catch_up()
    return counted(system)


@pytest.mark.slow("a broker goes and comes back under a running system")
def test_a_broker_that_goes_and_comes_back_and_partitions_that_come_later(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    with running(spark, tmp_path, broker) as (system, client):
        for partition, count in enumerate((10, 5)):
            send(broker, partition, count)
        wait_for(system, 15)

        broker.stop()  # before anything is archived: nobody else knows how far the topic is
        try:
            began = time.monotonic()
            assert client.get("/readyz").json() == {"status": "not ready", "failing": ["log"]}
            system.poll()  # as `headrace up` does all the while
            status = client.get("/status").json()
            assert time.monotonic() - began < 30
        finally:
            broker.start()
        assert f"no Kafka broker answers at {broker.address}" in status["topics"][visits.name]["error"]
        assert (status["topics"][visits.name]["partitions"], status["topics"][visits.name]["archived"]) == ([], {})
        assert status["views"]["hits"]["provenance"]["reached"] == {"0": 10, "1": 5}

        broker.grow(visits.name, 3)
        send(broker, 1, 7)
        send(broker, 2, 20)
        wait_for(system, 42)
        system.begin("hits", incremental=False)
        system.jobs.wait(SECONDS)
        assert counted(system, Query(layer="batch")) == counted(system) == 42
        status = client.get("/status").json()
        ends = {"0": 10, "1": 12, "2": 20}
        topic, view = status["topics"][visits.name], status["views"]["hits"]
        assert (topic["archived"], view["provenance"]["boundary"], topic["error"]) == (ends, ends, None)
        assert (view["state"], view["error"]) == ("running", None)
        assert client.get("/readyz").json() == {"status": "ready"}
