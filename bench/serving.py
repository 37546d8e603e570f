"""The HTTP API against a bare route, in one run, on data it makes.

    python bench/serving.py [--quick] [--only points]

points   point questions to a view of 1 M rows, a version merged with what came since    rival: a FastAPI route that
         returns a constant, on the same uvicorn

Both serve from processes of their own, and are asked in turn over 8 connections; figures are the medians of the turns.
The last line is JSON.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import uvicorn
from _sections import Bench, Verdict, run
from fastapi import FastAPI

import headrace as hr
from headrace.log import Log
from headrace.server import Server, Service
from headrace.views.app import App
from headrace.views.layout import Partial
from headrace.views.progress import MicroBatch
from headrace.views.stores import Store

HOUR = 3_600_000_000
CONNECTIONS = 8

visits = hr.Topic("visits", schema="user string, url string, ts timestamp", event_time="ts", key="url")


@hr.view(visits, window=hr.FixedWindows("1 hour"))
def hits(events: hr.PCollection) -> hr.PCollection:
    return events | hr.GroupBy("url").aggregate(n=hr.count())


def url(number: int) -> str:
    return f"example.com/page/{number}"


def service(folder: Path) -> Service:
    return Service.of(App.of({"hits": hits}), Store(f"sqlite:///{folder}/views.db"), Log(folder / "log"))


# Serving


def serve_views(folder: Path, told: Connection) -> None:
    server = Server(service(folder), port=0)
    told.send(server.port)
    server.run()


def serve_constant(folder: Path, told: Connection) -> None:
    app = FastAPI()

    @app.get("/constant")
    async def constant() -> dict[str, str]:
        return {"hello": "world"}

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    told.send(listening.getsockname()[1])
    uvicorn.Server(uvicorn.Config(app, access_log=False, log_config=None)).run(sockets=[listening])


@contextmanager
def serving(target: Callable[[Path, Connection], None], folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """The port of a process that serves, and the process."""
    hears, tells = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=target, args=(folder, tells))
    process.start()
    try:
        yield hears.recv(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.join()


# Asking


async def ask(port: int, paths: list[str], latencies: list[float]) -> None:
    """One connection that asks one question after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for path in paths:
        begun = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path}: {head[:40]!r}")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        latencies.append(time.perf_counter() - begun)
    writer.close()


def asked(server: tuple[int, psutil.Process], paths: list[str]) -> tuple[float, float, float]:
    """Requests a second, the 99th percentile of their times in milliseconds, and microseconds of CPU for each."""
    port, process = server
    latencies: list[float] = []

    async def all_at_once() -> None:
        await asyncio.gather(*(ask(port, paths[each::CONNECTIONS], latencies) for each in range(CONNECTIONS)))

    begun, used = time.perf_counter(), sum(process.cpu_times()[:2])
    asyncio.run(all_at_once())
    taken, used = time.perf_counter() - begun, sum(process.cpu_times()[:2]) - used
    return len(paths) / taken, statistics.quantiles(latencies, n=100)[98] * 1000, used / len(paths) * 1e6


# Points


def points(bench: Bench) -> Iterator[Verdict]:
    rows, requests, turns = (100_000, 3_000, 3) if bench.quick else (1_000_000, 5_000, 7)
    view = service(bench.folder).views["hits"]
    with view.build(view.cut()) as version:
        version.load(Partial((url(number),), 0, HOUR, (number % 7 + 1,)) for number in range(rows))
        version.publish()
    recent = [Partial((url(number),), 0, HOUR, (1,)) for number in range(0, rows, 100)]
    view.add(MicroBatch("speed", 0, {}, {0: len(recent)}), recent)
    chance = random.Random(1)
    with serving(serve_views, bench.folder) as views, serving(serve_constant, bench.folder) as constant:
        ours: list[tuple[float, float, float]] = []
        bare: list[tuple[float, float, float]] = []
        for _ in range(turns + 1):
            bare.append(asked(constant, ["/constant"] * requests))
            ours.append(asked(views, [f"/views/hits?url={url(chance.randrange(rows))}" for _ in range(requests)]))
    rates = []
    for name, turn in (("constant", bare), ("point questions", ours)):
        rate, p99, cpu = (statistics.median(column) for column in zip(*turn[1:], strict=True))  # the first warms up
        rounds = [round(each[0]) for each in turn[1:]]
        bench.say(f"{name:34} {rate:10,.0f}/s   p99 {p99:6.2f} ms   {cpu:4.0f} µs of CPU   of {rounds}")
        rates.append((rate, p99))
    yield Verdict("points: rate", rates[1][0] / rates[0][0], 0.7, True, "see where a request spends its time")
    yield Verdict("points: p99", rates[1][1] / rates[0][1], 3, False, "see what makes some requests wait")


if __name__ == "__main__":
    run("serving", __doc__, points)
