"""Continuous SQL over HTTP: answers, errors with their place, changes of views, scopes, and attacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from rich.console import Console

import headrace as hr
from headrace.commands import sqlshell
from headrace.dialects.sql.catalog import View
from headrace.dialects.sql.networkrules import check_from_network
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlfunctions import SqlFunctions
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.sqlstatements import CreateQuery, parse_statements
from headrace.model.jsontext import dumps
from headrace.server import Server, Service, Tokens
from headrace.system.client import HttpClient
from headrace.system.runs import Runs
from headrace.system.servedsql import ServedSql
from headrace.system.sqlclient import SqlClient
from headrace.system.sqlsystem import SqlSystem
from headrace.views.adhoc.sqlrequest import JsonLimits

READ, WRITE, ADMIN = "r" * 20, "w" * 20, "a" * 20
STREAM = "CREATE STREAM trades (symbol text, price double, size bigint, at timestamp)"
VIEW = "CREATE VIEW totals AS SELECT symbol, count(*) AS n FROM trades GROUP BY symbol"


def add_view(session: SqlSession, rows: list[tuple[Any, ...]]) -> None:
    """Adds a view with these rows, which nothing computes: that takes Spark."""
    (statement,) = parse_statements(VIEW)
    assert isinstance(statement, CreateQuery)
    schema = pa.schema([("symbol", pa.string()), ("n", pa.int64())])
    session._tables.create("totals", schema, ("symbol",))
    session.catalog.add_view(View(statement, {"symbol": "string", "n": "bigint"}, ("symbol",), "nothing"))
    with session._tables._engine.begin() as connection:
        for row in rows:
            connection.exec_driver_sql("INSERT INTO totals VALUES (?, ?)", row)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqlSession]:
    with SqlSession(str(tmp_path / "home")) as session:
        session.execute(STREAM)
        add_view(session, [("IBM", 3), ("SAP", 5), (None, 1)])
        yield session


@pytest.fixture
def server(session: SqlSession, tmp_path: Path) -> Iterator[Server]:
    home = tmp_path / "home"
    statements = ServedSql(home, f"sqlite:///{home}/views.db", SqlSystem(session, Runs()))
    tokens = Tokens.parse(f"read:{READ} write:{WRITE} admin:{ADMIN}")
    with Server(Service({}, {}, statements=statements), port=0, tokens=tokens) as server:
        yield server


def client(server: Server, token: str = ADMIN) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def post(server: Server, text: str, token: str = ADMIN) -> httpx.Response:
    with client(server, token) as asking:
        return asking.post("/sql/statements", json={"text": text})


def test_statements_are_answered_one_by_one(server: Server) -> None:
    answer = post(
        server,
        "INSERT INTO trades VALUES ('IBM', 1.5, 2, '2026-01-31T12:00:00Z');"
        "SHOW STREAMS; DESCRIBE totals; SELECT * FROM totals ORDER BY n; SELECT n + 1 AS m FROM totals WHERE n > 9",
    )
    assert answer.status_code == 200
    assert answer.json()["results"] == [
        {"message": "inserted 1"},
        {"columns": ["stream"], "rows": [["trades"]], "truncated": False},
        {"columns": ["column", "type"], "rows": [["symbol", "string"], ["n", "bigint"]], "truncated": False},
        {"columns": ["symbol", "n"], "rows": [[None, 1], ["IBM", 3], ["SAP", 5]], "truncated": False},
        {"columns": ["m"], "rows": [], "truncated": False},
    ]
    assert post(server, "").json() == {"results": []}
    with client(server) as asking:
        catalog = asking.get("/sql/catalog").json()
        post(server, "CREATE STREAM quotes (bid double)")
        names = [each["name"] for each in asking.get("/sql/catalog").json()["streams"]]
    assert catalog["views"] == [{"name": "totals", "columns": {"symbol": "string", "n": "bigint"}, "text": VIEW}]
    assert names == ["trades", "quotes"]


def test_errors_say_where(server: Server) -> None:
    wrong = post(server, "SHOW STREAMS;\nSELEC 1")
    assert (wrong.status_code, wrong.json()["line"], wrong.json()["column"]) == (400, 2, 1)
    assert "did you mean SELECT?\nSELEC 1\n^" in wrong.json()["reason"]
    unknown = post(server, "CREATE STREAM s (x int);\nDROP STREAM s;\nINSERT INTO s VALUES (1)")
    assert (unknown.status_code, unknown.json()["done"]) == (422, 2)
    typed = post(server, "INSERT INTO trades (price) VALUES ('dear')")
    assert (typed.status_code, typed.json()["reason"]) == (422, "the column 'price' is double, got 'dear'")
    with client(server) as asking:
        for body in ({}, {"text": 3}, {"text": "SHOW VIEWS", "wait": 1}, {"sql": "SHOW VIEWS"}):
            assert asking.post("/sql/statements", json=body).status_code == 400, body


def test_scopes(server: Server, session: SqlSession) -> None:
    for token in (READ, WRITE):
        refused = post(server, "DROP VIEW totals", token)
        assert (refused.status_code, "'admin'" in refused.json()["reason"]) == (403, True)
    assert list(session.catalog.views) == ["totals"]
    with client(server, READ) as asking:
        assert asking.get("/sql/catalog").status_code == 200
    with httpx.Client(base_url=server.url) as nobody:
        assert nobody.get("/sql/catalog").status_code == 401
        assert nobody.post("/sql/statements", json={"text": "SHOW VIEWS"}).status_code == 401
        form = nobody.post("/sql/statements", data={"text": "DROP VIEW totals"})
        assert form.status_code in (401, 415)


ATTACKS = {
    # files
    "COPY trades FROM '/etc/passwd'": "COPY TRADES ... is not for statements over the network",
    "SELECT * FROM read_csv('/etc/passwd')": "read_csv is not allowed",
    "SELECT * FROM '/etc/passwd'": "/etc/passwd",
    "SELECT * FROM parquet_scan('/data/x.parquet')": "parquet_scan",
    "CREATE VIEW v AS SELECT * FROM parquet.`/etc/passwd`": "no stream or view of this session",
    "CREATE VIEW v AS SELECT symbol FROM trades WHERE size IN (SELECT x FROM csv.`/etc/passwd`)": "no stream or view",
    "EXPLAIN SELECT (SELECT max(value) FROM text.`/etc/passwd`) AS x FROM trades": "no stream or view",
    "CREATE TABLE t (x text) WITH (parquet = '/etc')": "CREATE TABLE ... is not for statements over the network",
    # other tables of the database, and other schemas
    "SELECT * FROM headrace_batches": "there is no view 'headrace_batches'",
    "SELECT * FROM information_schema.tables": "there is no view 'tables'",
    "SELECT * FROM sqlite_master": "there is no view 'sqlite_master'",
    "CREATE VIEW headrace_batches AS SELECT symbol FROM trades": "is no name for a stream or a view",
    "CREATE VIEW `public.users` AS SELECT symbol FROM trades": "is no name for a stream or a view",
    "CREATE STREAM `../../evil` (x int)": "is no name for a stream or a view",
    "CREATE STREAM s (x int) WITH (topic = '../../evil')": "evil",
    "CREATE VIEW v AS SELECT a FROM other.trades": "no stream or view of this session",
    "DROP VIEW headrace_batches": "there is no view",
    # other machines
    "CREATE STREAM s (x int) WITH (topic = 'kafka://10.0.0.1:9092/secrets')": "is of another system",
    # Java and Python
    "CREATE VIEW v AS SELECT reflect('java.lang.System', 'exit', 0) AS x FROM trades": "the function reflect",
    "CREATE VIEW v AS SELECT `java_method`('java.lang.Runtime', 'x') AS x FROM trades": "the function java_method",
    "CREATE VIEW v AS SELECT sum(try_reflect('a', 'b')) AS x FROM trades": "the function try_reflect",
    "EXPLAIN SELECT symbol FROM trades WHERE REFLECT('a', 'b') = 'c'": "the function reflect",
    "CREATE VIEW v AS SELECT input_file_name() AS x FROM trades": "the function input_file_name",
    "CREATE VIEW v AS SELECT from_avro(symbol, '{}') AS x FROM trades": "the function from_avro",
    "CREATE VIEW v AS SELECT not_registered(symbol) AS x FROM trades": "the function not_registered",
    "CREATE TRANSFORM v INTO trades AS SELECT not_registered(*) FROM trades": "the function not_registered",
    "CREATE VIEW v AS SELECT symbol FROM trades GROUP BY symbol HAVING exec(max(symbol)) = 1": "the function exec",
    "EXPLAIN SELECT transform(array(size), x -> eval(x)) AS y FROM trades": "the function",
}


@hr.sql_function("string")
def registered(symbol: str) -> str:
    return symbol


def test_functions_that_are_registered_are_reached_and_no_others(session: SqlSession) -> None:
    names = SqlFunctions.of([registered]).by_name
    for text, allowed in {
        "CREATE VIEW v AS SELECT Registered(symbol) AS x FROM trades": True,
        "CREATE VIEW v AS SELECT upper(registered(symbol)) AS x FROM trades WHERE registered(symbol) = 'x'": True,
        "CREATE VIEW v AS SELECT registered(other(symbol)) AS x FROM trades": False,
        "CREATE VIEW v AS SELECT registered(x) AS x FROM (SELECT reflect('a', 'b') AS x FROM trades)": False,
    }.items():
        (statement,) = parse_statements(text)
        if allowed:
            check_from_network(statement, session.catalog, names)
        else:
            with pytest.raises(SqlError, match="is not allowed in statements over the network"):
                check_from_network(statement, session.catalog, names)
        with pytest.raises(SqlError, match="is not allowed in statements over the network"):
            check_from_network(statement, session.catalog)


def test_a_row_by_its_key_is_answered_at_once_and_as_ever(server: Server, session: SqlSession) -> None:
    statements = ServedSql(session.catalog.path.parent, f"sqlite:///{session.catalog.path.parent}/views.db", None)  # type: ignore[arg-type]
    text = "SELECT n, symbol AS s FROM totals WHERE symbol = '{}'"
    assert statements.quick(text.format("IBM")) is None  # nobody has planned it yet
    limits: JsonLimits = {"cells": 1_000, "bytes": 10_000}
    for symbol in ("IBM", "SAP", "HPQ"):
        (answer,) = statements.execute(text.format(symbol), limits)
        quick = statements.quick(text.format(symbol))
        assert (quick is None) == (symbol == "HPQ")  # a row that is not there is left to others
        if quick is not None:
            assert dumps(quick["rows"]) == answer.rows and quick["columns"] == answer.columns
        both = [post(server, text.format(symbol)).json() for _ in range(2)]
        assert both[0] == both[1]
    for other in ("SELECT n FROM totals WHERE n = 3", "SELECT n FROM totals WHERE symbol = 'IBM' LIMIT 0"):
        statements.execute(other, limits)
        assert statements.quick(other) is None
    with session._tables._engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO totals VALUES (?, 1)", ("x" * 1_000,))
        assert statements.quick(text.format("IBM")) is not None  # as of before
        connection.exec_driver_sql("UPDATE totals SET symbol = ? WHERE n = 5", ("y" * 100_000,))
    long = post(server, f"SELECT n, symbol FROM totals WHERE symbol = '{'x' * 1_000}'").json()["results"][0]
    assert long["rows"] == [[1, "x" * 1_000]]
    with session._tables._engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE totals RENAME TO gone")
    assert statements.quick(text.format("IBM")) is None
    statements.close()


def test_statements_reach_nothing_else(server: Server, session: SqlSession) -> None:
    for text, reason in ATTACKS.items():
        refused = post(server, text)
        assert refused.status_code in (400, 422), (text, refused.text)
        assert reason in refused.json()["reason"], text
        assert (list(session.catalog.streams), list(session.catalog.views)) == (["trades"], ["totals"]), text


def test_nothing_breaks_the_server(server: Server) -> None:
    for text in (
        "(" * 5_000 + "SELECT 1",
        "SELECT " + "-" * 20_000 + "1",
        "SELECT '",
        "\0",
        ";;;",
        "CREATE TABLE x (a int)",
        "SHOW",
        "EXPLAIN EXPLAIN SELECT 1",
        "CREATE VIEW v AS VALUES (1)",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "SELECT " + " + ".join(["1"] * 3_000),
        "DROP VIEW",
        "INSERT INTO trades SELECT 1",
        "CREATE",
        "SUBSCRIBE nothing",
        "PAUSE nothing",
        "SELECT * FROM totals UNION ALL SELECT * FROM totals",
        "/* */",
        "DESCRIBE FORMATTED x",
    ):
        answer = post(server, text)
        assert answer.status_code in (200, 400, 422), (text[:80], answer.text)
        if answer.status_code != 200:
            assert "reason" in json.loads(answer.text)
    assert post(server, "SHOW VIEWS").status_code == 200


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """The events of a stream, but for heartbeats."""
    kind = ""
    for line in lines:
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


def test_changes_are_followed(server: Server, session: SqlSession) -> None:
    engine = session._tables._engine
    with client(server, READ) as asking:
        assert asking.get("/sql/views/nothing/changes").status_code == 404
        assert asking.get("/sql/views/totals/changes?snapshot=1").status_code == 400
        with asking.stream("GET", "/sql/views/totals/changes") as response:
            following = events(response.iter_lines())
            first = [next(following) for _ in range(3)]
            assert [event["new"]["n"] for kind, event in first if kind == "change"] == [3, 5, 1]
            assert next(following) == ("progress", {"position": 0})
            with engine.begin() as connection:
                connection.exec_driver_sql("UPDATE totals SET n = n + 1 WHERE symbol = 'IBM'")
                connection.exec_driver_sql("DELETE FROM totals WHERE symbol = 'SAP'")
            assert [next(following) for _ in range(3)] == [
                ("change", {"old": {"symbol": "IBM", "n": 3}, "new": {"symbol": "IBM", "n": 4}}),
                ("change", {"old": {"symbol": "SAP", "n": 5}, "new": None}),
                ("progress", {"position": 2}),
            ]
            session._tables.drop("totals")
            kind, event = next(following)
            assert (kind, "the view was dropped" in event["reason"]) == ("end", True)
            assert list(following) == []
    refused = post(server, "SUBSCRIBE totals")
    assert (refused.status_code, "GET /sql/views/totals/changes" in refused.json()["reason"]) == (422, True)


def test_the_shell_follows_changes_of_a_system_and_of_a_session(
    server: Server, session: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TOKEN", ADMIN)

    class Shown(Console):
        """A console at which Ctrl-C is pressed after three lines."""

        lines = 0

        def print(self, *args: Any, **options: Any) -> None:
            super().print(*args, **options)
            self.lines += 1
            if self.lines == 3:
                raise KeyboardInterrupt

    for executor in (SqlClient(HttpClient(server.url, ADMIN)), session):
        console = Shown(file=StringIO())
        sqlshell.show(executor.execute("SUBSCRIBE totals")[0], console)
        assert console.file.getvalue() == "+ symbol=IBM, n=3\n+ symbol=SAP, n=5\n+ symbol=None, n=1\n"  # type: ignore[attr-defined]
