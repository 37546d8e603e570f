"""A system that is scripted: real views and topics with three days of a web shop, and a status made up around them.

python -m tests.server.scripted [PORT]     serves its page, with numbers that move
"""

from __future__ import annotations

import datetime as dt
import math
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import headrace as hr
from headrace.log import Log
from headrace.log.groups import Group
from headrace.model.sketches import ApproxDistinctFn
from headrace.model.times import format_instant, now
from headrace.server import Server, Service
from headrace.server.page.storestatus import store_status
from headrace.views.declare.app import App
from headrace.views.declare.layout import Partial
from headrace.views.errors import ViewError
from headrace.views.offsets import MicroBatch
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView

HOUR = 3_600_000_000
START = 1_772_323_200_000_000  # 2026-03-01
PEOPLE = ApproxDistinctFn()
PAGES = ("/", "/search", "/cart", "/checkout", "/products/anvil", "/products/rocket", "/help", "/blog/spring")

LETTERS = (
    (41, '{"user": "u7", "url"', "malformed", "it is not a JSON object"),
    (17, '{"user": "x", "url": "/cart"}', "no time", "it has no 'ts'"),
    (3, "GET / HTTP/1.1", "malformed", "it is not a JSON object"),
)

visits = hr.Topic("visits", schema="user string, url string, ts timestamp", event_time="ts", key="url", partitions=3)
orders = hr.Topic("orders", schema="customer string, amount bigint, ts timestamp", event_time="ts", key="customer")


@hr.view(visits, window=hr.FixedWindows("1 hour"))
def visitors(events: hr.PCollection) -> hr.PCollection:
    return events | hr.GroupBy("url").aggregate(hits=hr.count(), people=hr.approx_distinct("user"))


@hr.view(orders)
def customers(events: hr.PCollection) -> hr.PCollection:
    return events | hr.GroupBy("customer").aggregate(orders=hr.count(), spent=hr.sum("amount"))


@dataclass
class Shop:
    """The system. A batch is under way until `finish` is called; `clock` returns the time in microseconds."""

    service: Service
    clock: Callable[[], int]
    since: int
    jobs: list[dict[str, Any]] = field(default_factory=list)
    letters: list[dict[str, Any]] = field(default_factory=list)

    def status(self) -> dict[str, Any]:
        at = self.clock()
        status = store_status(self.service)
        for number, topic in enumerate(status["topics"].values()):
            topic["records_per_second"] = wave(at, number, 1980)
            topic["archived"] = {
                str(partition["partition"]): partition["end"] // 2 for partition in topic["partitions"]
            }
            topic["groups"]["master"] = {"offsets": topic["archived"], "lag": 7}
        for number, (name, view) in enumerate(status["views"].items()):
            topic, counted = ("visits", "url") if name == "visitors" else ("orders", "customer")
            rate, behind = wave(at, number, 1975), wave(at, number + 2, 1.4)
            elements = 120_000 + (at - self.since) // 1_000_000 * 1980
            marks = [format_instant(at - int(lag * 1_000_000)) for lag in (behind, behind + 0.6)]
            grouping = {"watermark": marks[0], "output_watermark": marks[1], "lag_seconds": behind, "held": 4}
            parsing = {"watermark": marks[0], "output_watermark": marks[0], "lag_seconds": behind / 2, "held": 0}
            source, window, group = f"topic {topic}", "WindowInto(FixedWindows('1 h'))", f"GroupBy({counted})"
            edges = [
                (source, window, elements - 31),
                (window, group, elements - 31),
                (group, f"store {name}", elements // 40),
            ]
            kinds = {source: "source", window: "transform", group: "grouping", f"store {name}": "sink"}
            if name == "visitors":
                kinds["dead letters"] = "sink"
                edges.insert(0, (source, "dead letters", 31))
            bad = {f"topic {topic}": {"malformed": 2, "no time": 1}} if name == "visitors" else {}
            view |= {
                "topic": topic,
                "state": "running",
                "batches": 412 + number,
                "batch_seconds": 0.41,
                "records_per_second": rate,
                "lag": int(wave(at, number, 300)),
                "watermark": marks[1],
                "stages": [
                    {"label": window, "late": 0, "refused": 3 if bad else 0, **parsing},
                    {"label": group, "late": 12, "refused": 0, **grouping},
                ],
                "graph": {
                    "nodes": [{"id": node, "kind": kind} for node, kind in kinds.items()],
                    "edges": [{"from": one, "to": other, "elements": n} for one, other, n in edges],
                },
                "bad": bad,
            }
        times = {"started": format_instant(self.since), "now": format_instant(at)}
        return {"app": "shop.py", "pid": 4711, **times, **status, "jobs": self.jobs}

    def compute(self, view: str, *, incremental: bool) -> dict[str, Any]:
        if any(job["state"] == "running" and job["view"] == view for job in self.jobs):
            raise ViewError(f"a batch of view {view!r} is under way; wait for it")
        job = {"id": len(self.jobs) + 1, "view": view, "incremental": incremental, "state": "running"}
        rest = {"step": "computing", "started": format_instant(self.clock()), "seconds": 3.2}
        self.jobs.append(job | rest | {"version": None, "error": None})
        return self.jobs[-1]

    def finish(self) -> None:
        """Publishes a copy of what there is, as the job under way would."""
        job = self.jobs[-1]
        view = self.service.views[job["view"]]
        publish(view, history(0, 48) if job["view"] == "visitors" else spendings(900))
        job |= {"state": "done", "step": "done", "version": view.provenance().version, "seconds": 4.7}

    def dead_letters(self, limit: int) -> list[dict[str, Any]]:
        return self.letters[:limit]


def wave(at: int, phase: int, height: float) -> float:
    """A number that moves around a height."""
    seconds = at / 1_000_000
    noise = random.Random(int(seconds) * 8 + phase).gauss(0, 0.03)
    return round(height * (1 + 0.1 * math.sin(seconds / 41 + phase) + noise), 2)


def partial_row(url: str, hour: int, users: list[str]) -> Partial:
    sketch = PEOPLE.dump(PEOPLE.add_all(PEOPLE.zero(), users))
    return Partial((url,), START + hour * HOUR, START + (hour + 1) * HOUR, (len(users), sketch))


def history(since: int, until: int) -> list[Partial]:
    """The visits of some hours: many by day, few by night."""
    chance, rows = random.Random(7), []
    for hour in range(until):
        for number, url in enumerate(PAGES):
            most = int((200 + 160 * math.sin((hour - 8) / 24 * 2 * math.pi)) / (number + 1)) + 3
            users = [f"user {chance.randrange(400)}" for _ in range(chance.randrange(most // 2, most))]
            if hour >= since:
                rows.append(partial_row(url, hour, users))
    return rows


def spendings(amount: int) -> list[Partial]:
    ends = (hr.model.times.MIN_TIME, hr.model.times.MAX_TIME)
    names = ("ann", "bob", "cleo", "dan", "eve", "finn", "gus", "hana")
    return [Partial((name,), *ends, (at + 1, amount * (9 - at))) for at, name in enumerate(names)]


def feed(view: StoredView, rows: list[Partial], offsets: dict[int, int]) -> None:
    """Adds a micro-batch of these rows."""
    reached = view.provenance()
    batch = MicroBatch("s", reached.batch + 1, reached.reached, offsets, START + 71 * HOUR)
    view.add(batch, rows)


def publish(view: StoredView, rows: list[Partial]) -> None:
    with view.build(view.cut()) as version:
        version.load(rows)
        version.publish()


def shop(folder: Path, clock: Callable[[], int] = now) -> Shop:
    """The system, with two batch versions of visitors up to different hours, and what speed has since."""
    store = Store(f"sqlite:///{folder}/views.db", clock=clock)
    service = Service.of(App.of({"visitors": visitors, "customers": customers}), store, Log(folder / "log"))
    view = service.views["visitors"]
    feed(view, history(0, 24), {0: 2_000, 1: 1_500, 2: 1_712})
    publish(view, history(0, 24))
    feed(view, history(24, 48), {0: 4_100, 1: 3_051, 2: 3_333})
    publish(view, history(0, 48))
    feed(view, history(46, 60), {0: 5_003, 1: 4_002, 2: 4_120})
    feed(service.views["customers"], spendings(500), {0: 77})
    lines = "\n".join(f'{{"user": "u{n}", "url": "{PAGES[n % 8]}", "ts": {n}}}' for n in range(64))
    service.topics["visits"].append(lines.encode())
    Group(Log(folder / "log"), "visits", "visitors").commit({0: 3})
    system = Shop(service, clock, clock())
    at = format_instant(clock())
    for offset, record, reason, message in LETTERS:
        where = {"view": "visitors", "position": f"visits/0@{offset}", "time": at}
        system.letters.append(where | {"reason": reason, "message": message, "record": record})
    return replace(system, service=replace(service, operations=system))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        running = shop(Path(folder))
        with Server(running.service, port=int((sys.argv[1:] or ["8787"])[0]), page=True) as server:
            print(server.url, dt.datetime.now().isoformat(timespec="seconds"), flush=True)
            threading.Event().wait()
