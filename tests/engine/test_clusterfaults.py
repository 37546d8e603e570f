"""A stream on a cluster loses every part of it in turn, and writes what it would have written.

`make chaos` inflicts more of it, at seeded moments: see `tests/chaos/clusterfaults.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.clusterfaults import Fault, Servers, survive, tail
from tests.edges import postgresql
from tests.edges.kafka import Broker
from tests.engine.sparkcluster import Cluster
from tests.scale import only_full

FAULTS = [Fault("executor", 1, 5, 0), Fault("python", 1, 20, 1), Fault("freeze", 2, 4, 1), Fault("worker", 4, 5, 2)]


@only_full("test_kill.py kills drivers and workers on this machine, test_cluster.py has a cluster")
@pytest.mark.slow("executors, Python workers and a worker of a cluster are lost, one after the other")
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_whatever_is_lost(spark_cluster: Cluster, broker: Broker, tmp_path: Path) -> None:
    with postgresql.serving() as database:
        folder = tmp_path / "stream"
        result = survive(folder, "lost", Servers(spark_cluster, broker, database), FAULTS)
    assert not result.differing, tail(folder)
    assert [fault.kind for fault in result.faults] == [fault.kind for fault in FAULTS]
