"""`headrace up` with its parts elsewhere: Spark is a cluster of processes, and the store is PostgreSQL."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.commands.test_system import APP
from tests.edges import postgresql
from tests.engine.sparkcluster import Cluster
from tests.scale import only_full
from tests.system.test_up import SECONDS, headrace, hits, send, up, wait_for


@pytest.fixture
def store(postgresql_server: str) -> str:
    return postgresql.empty(postgresql_server, "elsewhere")


@only_full("test_cluster.py has a pipeline on a cluster, test_up.py a system")
@pytest.mark.slow("a driver on a cluster")
def test_up_on_a_cluster_and_in_postgresql(spark_cluster: Cluster, store: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    environment = {**spark_cluster.environment, "HEADRACE_STORE": store}
    with up(tmp_path, master=spark_cluster.url, **environment) as (process, client):
        send(client, 70)
        wait_for(client, 70)
        assert "version 1 is current" in headrace(tmp_path, "batch", str(tmp_path / "app.py"), "hits")
        send(client, 35)
        wait_for(client, 105)
        assert hits(client) == 105
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
        assert process.stderr is not None
        assert postgresql.PASSWORD not in process.stderr.read()

    answer = json.loads(headrace(tmp_path, "query", "hits", "--url", "/3", "--json", "--store", store))
    assert ([row["values"] for row in answer["rows"]], answer["version"]) == ([{"n": 15}], 1)
    engine = sa.create_engine(store.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM headrace_versions")) == 1
    engine.dispose()
    assert postgresql.PASSWORD not in (tmp_path / "data" / "runs.json").read_text()
