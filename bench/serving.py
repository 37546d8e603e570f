"""The HTTP API of a system: how fast, how steady and how fresh its answers are, in one run, on data it makes.

    python bench/serving.py [--quick] [--only points,swap,freshness,incremental]

points      point questions to a view of 1 M rows, a version merged with what came since   rival: a FastAPI route that
            returns a constant, on uvicorn as it comes; both in processes of their own, asked in turn
swap        the same while a batch version of 1 M rows is loaded and swapped in, as in `headrace up`: the server has a
            process of its own, the load is in that of the system. A checker polls totals all the while
freshness   from before an event is posted until an answer has it, at 2,000 events a second, with `headrace up` on Spark
incremental a batch version of 20 M events, and versions of the one before and 1 % more

Questions come from wrk, or from a client of our own where there is none, over 8 connections. Figures are medians of
turns; a ratio is the median of the ratios of turns that follow each other, so that what else runs hits both alike.
The last line is JSON.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import uvicorn
from _freshness import freshness
from _incremental import incremental
from _load import WRK, Asking, Load
from _sections import Bench, Verdict, run
from _swapping import Pages, checked, served, service
from fastapi import FastAPI

from headrace.model.times import now
from headrace.server import Server
from headrace.system.served import Served, server_process
from headrace.views.jsonencoding import encode_time


class Resting:
    """The operations of a system that does nothing."""

    def status(self) -> dict[str, object]:
        return {"now": encode_time(now()), "topics": {}, "views": {}, "jobs": []}

    def compute(self, view: str, *, incremental: bool) -> dict[str, object]:
        raise NotImplementedError

    def dead_letters(self, limit: int) -> list[dict[str, object]]:
        return []


def serve_constant(told: Connection) -> None:
    app = FastAPI()

    @app.get("/constant")
    async def constant() -> dict[str, str]:
        return {"hello": "world"}

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    told.send(f"http://127.0.0.1:{listening.getsockname()[1]}/constant")
    uvicorn.Server(uvicorn.Config(app, access_log=False, log_config=None)).run(sockets=[listening])


@contextmanager
def serving(target: Callable[[Connection], None]) -> Iterator[tuple[str, int]]:
    """The address of a process that serves, and the process."""
    hears, tells = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=target, args=(tells,))
    process.start()
    try:
        yield hears.recv(), process.pid or 0
    finally:
        process.terminate()
        process.join()


def cpu(process: int) -> float:
    return sum(psutil.Process(process).cpu_times()[:2])


def filled(folder: Path, rows: int) -> tuple[Served, Pages]:
    """A view of so many rows: a version, and hits since."""
    what = served(folder)
    return what, Pages(service(what).views["hits"], rows)


# Points


def points(bench: Bench) -> Iterator[Verdict]:
    rows, seconds, turns = (100_000, 1, 5) if bench.quick else (1_000_000, 2, 15)
    what, _ = filled(bench.folder, rows)
    bench.say(f"asked by {WRK or 'a client of our own'}")
    loads: dict[str, list[tuple[Load, float]]] = {"constant": [], "point questions": []}
    with server_process(what, Resting(), port=0) as server, serving(serve_constant) as (constant, other):
        sides = (("constant", constant, other, 0), ("point questions", f"{server.url}/views/hits", server.pid, rows))
        for turn in range(turns + 1):
            for name, address, process, asked in sides:
                used = cpu(process)
                load = Asking(address, seconds=seconds, rows=asked, seed=turn + 1).wait()
                loads[name].append((load, (cpu(process) - used) / load.requests * 1e6))
    for name, each in loads.items():
        del each[0]  # it warms up
        rate, p99 = statistics.median(load.rate for load, _ in each), statistics.median(load.p99 for load, _ in each)
        used = statistics.median(used for _, used in each)
        bench.say(f"{name:24} {rate:8,.0f}/s   p99 {p99:6.2f} ms   {used:4.0f} µs of CPU   {_errors(each)} errors")
        if _errors(each):
            raise RuntimeError(f"{_errors(each)} requests failed, which says nothing about the others")
    pairs = list(zip(*loads.values(), strict=True))
    rates = [ours.rate / bare.rate for (bare, _), (ours, _) in pairs]
    bench.say(f"ratios of the turns: {' '.join(f'{each:.2f}' for each in sorted(rates))}; load now {_load()}")
    yield Verdict("points: rate", statistics.median(rates), 0.7, True, "see where a request spends its time")
    p99 = statistics.median(ours.p99 / bare.p99 for (bare, _), (ours, _) in pairs)
    yield Verdict("points: p99", p99, 3, False, "see what makes some requests wait")


def _errors(loads: list[tuple[Load, float]]) -> int:
    return sum(load.errors for load, _ in loads)


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


# Swap


def swap(bench: Bench) -> Iterator[Verdict]:
    rows, seconds, turns = (100_000, 4, 1) if bench.quick else (1_000_000, 20, 3)
    what, pages = filled(bench.folder, rows)
    polls: dict[str, int] = {}
    with server_process(what, Resting(), port=0) as server:
        apart, errors = _swapped(bench, "server in its process", what, pages, server.url, seconds, turns, polls)
    with Server(service(what), port=0) as server:  # as it would be with one process for all
        _swapped(bench, "one process for all", what, pages, server.url, seconds, 1, {})
    bench.say(
        f"the checker polled {polls['slices']} totals of some pages by HTTP, {polls['totals']} of all in the store"
    )
    yield Verdict("swap: p99", apart, 2, False, "see what the load takes from the server")
    yield Verdict("swap: errors", errors, 0, False, "read the log of the server")
    yield Verdict("swap: wrong totals", polls["wrong"], 0, False, "an event counted twice or not at all")


def _swapped(
    bench: Bench, what: str, app: Served, pages: Pages, address: str, seconds: int, turns: int, polls: dict[str, int]
) -> tuple[float, int]:
    """How much longer the 99th percentile is during a swap than before it, and how many questions failed."""
    Asking(f"{address}/views/hits", seconds=2, rows=pages.rows).wait()
    before, during = [], []
    with pages.growing(), checked(app, address, pages.rows, polls):
        for turn in range(turns):
            before.append(Asking(f"{address}/views/hits", seconds=seconds, rows=pages.rows, seed=turn + 1).wait())
            asking = Asking(f"{address}/views/hits", rows=pages.rows, seed=turn + 100)
            pages.version()
            during.append(asking.stop())
    for name, loads in (("before", before), ("during swaps", during)):
        rate, p50, p99 = (statistics.median(getattr(each, part) for each in loads) for part in ("rate", "p50", "p99"))
        bench.say(f"{what:22} {name:12} {rate:7,.0f}/s   p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   load now {_load()}")
    ratio = statistics.median(swapped.p99 / calm.p99 for calm, swapped in zip(before, during, strict=True))
    return ratio, sum(each.errors for each in (*before, *during))


if __name__ == "__main__":
    run("serving", __doc__, points, swap, freshness, incremental)
