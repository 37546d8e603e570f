"""A view that is swapped while it is asked: events that keep coming, batch versions, and a check of what is answered.

An event is a hit of one page. After every micro-batch and in every version, the hits of all pages are as many as there
were events up to the offset that the store says, so whoever reads the two in one snapshot sees what counts double.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

from headrace.log import Log
from headrace.server import Service
from headrace.system.served import Served
from headrace.views.declare.app import App
from headrace.views.declare.layout import Partial
from headrace.views.offsets import MicroBatch
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView

HOUR = 3_600_000_000
APP = """
import headrace as hr

visits = hr.Topic("visits", schema="user string, url string, ts timestamp", event_time="ts", key="url")

@hr.view(visits, window=hr.FixedWindows("1 hour"))
def hits(events):
    return events | hr.GroupBy("url").aggregate(n=hr.count())
"""
SLICES = "12346789"  # pages whose numbers begin with these get no new hits; those with 5 do


def url(number: int) -> str:
    return f"example.com/page/{number}"


def served(folder: Path) -> Served:
    """An app in a folder."""
    (folder / "app.py").write_text(APP)
    store = f"sqlite:///{folder}/views.db"
    return Served(str(folder / "app.py"), store, str(folder / "log"), str(folder / "master"), "local[1]")


def service(what: Served) -> Service:
    return Service.of(App.load(what.app), Store(what.store), Log(what.log))


class Pages:
    """The view of so many pages, and what it has to say."""

    def __init__(self, view: StoredView, rows: int) -> None:
        self.view, self.rows = view, rows
        self.hits = np.arange(rows) % 7 + 1
        self._lock = threading.Lock()
        self._batch = 0
        self._new = np.array([number for number in range(rows) if str(number)[0] == "5"])
        view.add(MicroBatch("speed", 0, {}, {0: int(self.hits.sum())}), [])  # which the first version has
        self.version()
        self.add(np.arange(0, rows, 100))

    def add(self, numbers: np.ndarray) -> None:
        """A micro-batch with a hit of each of these pages."""
        with self._lock:
            since = int(self.hits.sum())
            self.hits[numbers] += 1
            self._batch += 1
            batch = MicroBatch("speed", self._batch, {0: since}, {0: since + len(numbers)})
            self.view.add(batch, [Partial((url(number),), 0, HOUR, (1,)) for number in numbers.tolist()])

    def version(self) -> None:
        """A batch version of all hits so far, loaded and swapped in."""
        with self._lock:
            cut, hits = self.view.cut(), self.hits.tolist()
        with self.view.build(cut) as version:
            version.load(Partial((url(number),), 0, HOUR, (count,)) for number, count in enumerate(hits))
            version.publish()

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Gets 500 new hits twice a second, for the time of a block."""
        over, chance = threading.Event(), np.random.default_rng(1)

        def grow() -> None:
            while not over.wait(0.5):
                self.add(chance.choice(self._new, 500, replace=False))

        thread = threading.Thread(target=grow)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def checked(what: Served, address: str, rows: int, polls: dict[str, int]) -> Iterator[None]:
    """Another process polls totals for the time of a block: of some pages by HTTP, and of all in the store."""
    context = multiprocessing.get_context("spawn")
    over, found = context.Event(), context.SimpleQueue()
    process = context.Process(target=_check, args=(what, address, rows, over, found))
    process.start()
    found.get()  # it has begun
    try:
        yield
    finally:
        over.set()
        process.join()
    told = {"wrong": 1} if found.empty() else json.loads(found.get())  # one that failed has seen something wrong
    for name, count in told.items():
        polls[name] = polls.get(name, 0) + count


def _check(what: Served, address: str, rows: int, over: Event, found: multiprocessing.SimpleQueue[str]) -> None:
    view, chance = service(what).views["hits"], random.Random(2)
    base = np.arange(rows) % 7 + 1
    base[::100] += 1
    told = {"slices": 0, "totals": 0, "wrong": 0}
    due = 0.0
    found.put("begun")
    while not over.wait(0.1):
        told["slices"] += 1
        prefix = chance.choice(SLICES) + "".join(chance.choices("0123456789", k=len(str(rows)) - 4))
        expected = sum(
            int(base[int(prefix) * 10**k : min((int(prefix) + 1) * 10**k, rows)].sum()) for k in range(len(str(rows)))
        )
        asked = f"{address}/views/hits?url.prefix={url(int(prefix))}&by=&windows=merged"
        with urllib.request.urlopen(asked, timeout=60) as answer:
            (row,) = json.load(answer)["rows"]
        told["wrong"] += row["values"]["n"] != expected
        if time.monotonic() >= due:
            due = time.monotonic() + 1
            told["totals"] += 1
            told["wrong"] += not _total_is_right(view)
    found.put(json.dumps(told))


def _total_is_right(view: StoredView) -> bool:
    """Whether the hits of all pages are as many as the offset says, in one snapshot; summed where they are."""
    with view.database.snapshot() as cursor:
        state = view.state(cursor)
        live = [*state.parts, *(-each for each in state.generations)]
        cursor.execute(f'SELECT sum(n) FROM view_hits WHERE "__part" IN ({", ".join(map(str, live))})')
        return bool(cursor.fetchone()[0] == (state.progress.reached or {})[0])
