"""What tests of edges share: a real Kafka broker, if its jars are there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.edges.kafka import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that runs. A test that stops it starts it again."""
    from headrace.edges import connector
    from tests.edges import kafka

    if not (kafka.jars().exists() and connector.jars()):
        reason = f"no jars of Kafka in {connector.cache()}: `make kafka` fetches them from Maven Central"
        if "kafka" in os.environ.get("HEADRACE_REQUIRE", "").split(","):
            pytest.fail(f"{reason}, and HEADRACE_REQUIRE says that they are required")
        pytest.skip(reason)
    started = kafka.Broker(tmp_path_factory.mktemp("kafka"))
    try:
        started.start()
        yield started
    finally:
        started.stop()
