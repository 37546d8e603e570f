"""SELECT of a point from a view of continuous SQL over HTTP, against the views' own route, in one run.

    python bench/sqlpoint.py [--quick]

point   `POST /sql/statements` with `SELECT * FROM hits WHERE url = '...'`, of a view of 1 M rows in SQLite
        rival: `GET /views/hits?url=...`, of a view of 1 M rows; both in processes of their own, asked in turn

Questions come over 8 connections, each after the answer to the one before. Figures are medians of turns; a ratio is the
median of the ratios of turns that follow each other. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from _sections import Bench, Verdict, run
from serving import Resting, cpu, filled

from headrace.dialects.sql.catalog import Catalog, View
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.sqlstatements import CreateQuery, parse_statements
from headrace.server.process.childprocess import ServerProcess
from headrace.system.served import server_process

CONNECTIONS = 8
VIEW = "CREATE VIEW hits AS SELECT url, count(*) AS hits FROM visits GROUP BY url"
Request = Callable[[int], bytes]


def page(number: int) -> str:
    return f"example.com/page/{number}"


def session(folder: Path, rows: int) -> dict[str, str]:
    """The directory of a session with a view of so many rows, as its server is told of it."""
    folder.mkdir(mode=0o700)
    database = f"sqlite:///{folder}/views.db"
    (statement,) = parse_statements(VIEW)
    assert isinstance(statement, CreateQuery)
    Catalog(folder / "catalog.json").add_view(View(statement, {"url": "string", "hits": "bigint"}, ("url",), "none"))
    tables = ResultTables(database)
    tables.create("hits", pa.schema([("url", pa.string()), ("hits", pa.int64())]), ("url",))
    with tables._engine.begin() as connection:
        connection.connection.cursor().executemany(
            "INSERT INTO hits VALUES (?, ?)", ((page(number), number % 7 + 1) for number in range(rows))
        )
    tables.close()
    return {"directory": str(folder), "database": database, "storm": ""}


def get(host: str) -> Request:
    return lambda number: f"GET /views/hits?url={page(number)} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def post(host: str) -> Request:
    def request(number: int) -> bytes:
        body = json.dumps({"text": f"SELECT * FROM hits WHERE url = '{page(number)}'"}).encode()
        head = f"POST /sql/statements HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body

    return request


async def ask(url: str, request: Request, rows: int, seconds: float, seed: int) -> float:
    """Asks for some seconds; returns the number of answers."""
    parts, answers, until = urlsplit(url), 0, time.perf_counter() + seconds

    async def connection(number: int) -> None:
        nonlocal answers
        chance = random.Random(seed * CONNECTIONS + number)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while time.perf_counter() < until:
            asked = chance.randrange(rows)
            writer.write(request(asked))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
            if not head.startswith(b"HTTP/1.1 200") or page(asked).encode() not in body:
                raise RuntimeError(f"{page(asked)} is answered with {head + body!r}")
            answers += 1
        writer.close()

    await asyncio.gather(*(connection(number) for number in range(CONNECTIONS)))
    return answers


def point(bench: Bench) -> Iterator[Verdict]:
    rows, seconds, turns = (100_000, 1, 5) if bench.quick else (1_000_000, 2, 9)
    (bench.folder / "views").mkdir()
    what, _ = filled(bench.folder / "views", rows)
    factory = "headrace.system.sqlsystem:service_of"
    found: dict[str, list[tuple[float, float]]] = {"views' own route": [], "SELECT of a point": []}
    with (
        server_process(what, Resting(), port=0) as own,
        ServerProcess(factory, session(bench.folder / "sql", rows), Resting(), port=0) as sql,
    ):
        sides = (("views' own route", own, get), ("SELECT of a point", sql, post))
        for turn in range(turns + 1):
            for name, server, made in sides:
                used = cpu(server.pid)
                answers = asyncio.run(ask(server.url, made(urlsplit(server.url).netloc), rows, seconds, turn))
                found[name].append((answers / seconds, (cpu(server.pid) - used) / answers * 1e6))
    for name, each in found.items():
        del each[0]  # it warms up
        rate, used = (statistics.median(column) for column in zip(*each, strict=True))
        bench.say(f"{name:24} {rate:8,.0f}/s   {used:4.0f} µs of CPU")
    views, ours = found.values()
    ratio = statistics.median(mine[0] / theirs[0] for theirs, mine in zip(views, ours, strict=True))
    yield Verdict("point: rate", ratio, 1, True, "see where a statement spends its time")
    costs = statistics.median(mine[1] / theirs[1] for theirs, mine in zip(views, ours, strict=True))
    yield Verdict("point: CPU of the server", costs, 1, False, "see where a statement spends its time")


if __name__ == "__main__":
    run("sqlpoint", __doc__, point)
