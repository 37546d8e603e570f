"""The OpenAPI document against the server: schemathesis asks everything that it allows, and much that it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.dialects.sql.catalog import View
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.sqlstatements import CreateQuery, parse_statements
from headrace.log import Log
from headrace.server import Server, Service, Tokens
from headrace.server.routes.changestreams import ChangeStreams
from headrace.server.routes.serversentevents import EventStreams
from headrace.system.runs import Runs
from headrace.system.servedsql import ServedSql
from headrace.system.sqlsystem import SqlSystem
from headrace.views.declare.app import App
from headrace.views.stores import Store
from tests.dialects.storm.clusters import WordCount
from tests.scale import FULL
from tests.server.scripted import shop

SECRET = "a" * 20
TOPOLOGY = "words"
EXAMPLES = 200 if FULL else 10  # for each operation; the coverage phase has as many as it needs
# What a schema cannot say: which SQL is valid, and which versions are kept.
CONFIG = """
[[operations]]
include-path-regex = "^/sql$|/rollback$|^/sql/statements$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "422"]
"""

everything = hr.Topic(
    "everything",
    schema="s string, b boolean, i int, n bigint, f float, d double, x binary, day date, ts timestamp",
    key="s",
)


@hr.view(everything)
def kinds(events: hr.PCollection) -> hr.PCollection:
    """A view with keys of every kind."""
    return events | hr.GroupBy("s", "n", "b", "day", "ts", "x").aggregate(events=hr.count(), mean=hr.mean("d"))


class Topologies:
    """One topology, which carries out every command at once."""

    def __init__(self) -> None:
        self.status = json.loads(json.dumps(WordCount(TOPOLOGY).status().record()))

    def published(self) -> dict[str, Any]:
        return {"time": 0, "topologies": [self.status]}

    def errors(self, name: str, limit: int) -> list[dict[str, Any]]:
        return [{"time": 0, "component": "split", "task": 1, "error": "ValueError: x"}][:limit]

    def dead_letters(self, name: str, limit: int) -> list[dict[str, Any]]:
        return []

    def ask(self, command: str, **arguments: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with tokens, three views, topics, SQL, operations, a topology and statements. Event streams end with
    their first progress: schemathesis would wait for more events than there are."""

    def begun(whole: Callable[..., AsyncIterator[bytes]]) -> Callable[..., AsyncIterator[bytes]]:
        async def events(*arguments: Any) -> AsyncIterator[bytes]:
            async for event in whole(*arguments):
                yield event
                if b"event: progress" in event:
                    return

        return events

    for streams in (EventStreams, ChangeStreams):
        monkeypatch.setattr(streams, "_events", begun(streams._events))
    store = Store(f"sqlite:///{tmp_path}/kinds.db")
    more = Service.of(App.of({"kinds": kinds}), store, Log(tmp_path / "log"))
    service = shop(tmp_path).service
    session = SqlSession(str(tmp_path / "session"))
    session.execute("CREATE STREAM lines (word text)")
    (statement,) = parse_statements(f"CREATE VIEW {TOPOLOGY} AS SELECT word, count(*) AS n FROM lines GROUP BY word")
    assert isinstance(statement, CreateQuery)
    session._tables.create(TOPOLOGY, pa.schema([("word", pa.string()), ("n", pa.int64())]), ("word",))
    session.catalog.add_view(View(statement, {"word": "string", "n": "bigint"}, ("word",), "none"))
    database = f"sqlite:///{tmp_path}/session/views.db"
    service = replace(
        service,
        statements=ServedSql(tmp_path / "session", database, SqlSystem(session, Runs())),
        views={**service.views, **more.views},
        topics={**service.topics, **more.topics},
        topologies=Topologies(),
    )
    with Server(service, port=0, tokens=Tokens.parse(f"admin:{SECRET}")) as server:
        yield server
    session.close()
    store.close()


@pytest.mark.timeout(900)
@pytest.mark.slow("tries every operation of the API in each of the three phases")
def test_the_document_is_the_truth(server: Server, tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/openapi.json"]
    options = {"header": f"Authorization: Bearer {SECRET}", "checks": "all", "phases": "examples,coverage,fuzzing"}
    limits = {"max-examples": str(EXAMPLES), "seed": "1", "request-timeout": "60", "warnings": "off"}
    for name, value in {**options, **limits}.items():
        command += [f"--{name}", value]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.server.openapihooks", "PYTHONPATH": root}
    result = subprocess.run(
        [*command, "--no-color", "--continue-on-failure"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr
