"""Counts the page views of a site by batch and by stream at once, serves the counts, and checks them by a recount.

`make demo` runs it:

    python examples/demo.py [--seconds 90] [--port 8787]

It starts the system of `pageviews.py` in this process, as `headrace up` does, and sends it page views. From the first
answer on it runs for so many seconds (0: until Ctrl-C), computes two batch versions of each view meanwhile, and ends
with a recount of all page views in plain Python, with which the answers must agree.
"""

import argparse
import json
import math
import shutil
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from traffic import Event, Traffic

from headrace.commands.signals import stopped_by_signals
from headrace.server import Tokens
from headrace.system import Home, System
from headrace.system.lifecycle import Deployment, run_system
from headrace.system.statusdisplay import status_tables
from headrace.system.system import Schedule
from headrace.views.query.queries import Query

HERE = Path(__file__).parent
DATA = Path("out/demo")
ERROR = 0.06  # of a distinct count, three times its standard error


class Sender:
    """Sends the page views of one second each second, until it is stopped, and keeps all for the recount."""

    def __init__(self, traffic: Traffic, send: Callable[[list[Event]], Any]) -> None:
        self.sent: list[Event] = []
        self._traffic, self._send, self._stop = traffic, send, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        for second, views in enumerate(self._traffic.seconds()):
            if self._stop.wait(max(began + second - time.monotonic(), 0)):
                return
            self._send(views)
            self.sent += views


def answers(system: System, name: str) -> dict[tuple[str, int], dict[str, Any]]:
    """Returns all rows of a view, by key and minute."""
    return {
        (*row.key.values(), row.window.start): row.values
        for page in system.service.views[name].pages(Query(limit=10_000))
        for row in page.rows
    }


def recount(sent: list[Event]) -> dict[str, dict[tuple[str, int], dict[str, Any]]]:
    """Computes the same answers in plain Python, by view."""
    pages: dict[tuple[str, int], list[Event]] = defaultdict(list)
    countries: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in sent:
        minute = int(event["at"].timestamp() // 60) * 60_000_000
        pages[event["page"], minute].append(event)
        countries[event["country"], minute].append(event)
    return {
        "pages": {
            place: {"hits": len(events), "people": len({event["user"] for event in events})}
            for place, events in pages.items()
        },
        "countries": {
            place: {
                "hits": len(events),
                "ms": sum(event["ms"] for event in events),
                "slowest": max(event["ms"] for event in events),
            }
            for place, events in countries.items()
        },
    }


def differences(answered: dict[Any, dict[str, Any]], expected: dict[Any, dict[str, Any]]) -> list[str]:
    """Compares answers with the recount. Distinct people are an estimate, the others must be exact."""
    wrong = [f"{place} is missing" for place in expected.keys() - answered.keys()]
    wrong += [f"{place} should not exist" for place in answered.keys() - expected.keys()]
    for place in expected.keys() & answered.keys():
        for name, value in expected[place].items():
            answer = answered[place][name]
            allowed = ERROR * value if name == "people" else 0
            if abs(answer - value) > allowed:
                wrong.append(f"{name} of {place} is {answer}, but {value} in the recount")
    return wrong


def most_seen(url: str) -> tuple[Text, Table]:
    """Queries the five most visited pages over HTTP; returns the request and the answer."""
    request = f"{url}/views/pages?windows=merged&top=hits:5"
    answer = json.load(urllib.request.urlopen(request))
    table = Table("page", "hits", "people", box=None)
    for row in answer["rows"]:
        table.add_row(row["key"]["page"], f"{row['values']['hits']:,}", f"{row['values']['people']:,}")
    return Text(f"$ curl '{request}'"), table


def watch(system: System, url: str, sender: Sender, seconds: int, stop: threading.Event, console: Console) -> None:
    """Shows the status, and computes a full version after a third of the time and an incremental one after two thirds.

    On a slow machine it takes longer than so many seconds: both versions begin while page views come.
    """
    began, computed, last = time.monotonic(), 0, -math.inf
    with Live(console=console, auto_refresh=False, transient=True) as live:
        elapsed = 0.0
        while not stop.is_set() and not (seconds and elapsed > seconds and computed == 2):
            elapsed = time.monotonic() - began
            system.poll()
            status = system.status()
            idle = all(job["state"] in ("done", "failed") for job in status["jobs"])
            if computed < 2 and idle and elapsed > (computed + 1) * (seconds or 90) / 3:
                for name in system.app.views:
                    system.compute(name, incremental=computed > 0)
                computed += 1
            total = Text(f"{elapsed:.0f} s: {len(sender.sent):,} page views sent; see {url}")
            if console.is_terminal:
                live.update(Group(total, status_tables(status), *most_seen(url)), refresh=True)
            elif elapsed - last >= 15:
                console.print(total, status_tables(status))
                last = elapsed
            stop.wait(0.5)


def wait_for(system: System, count: int, stop: threading.Event) -> None:
    """Waits until the speed layers have processed so many page views."""
    while any(sum((view.progress().reached or {}).values()) < count for view in system.service.views.values()):
        system.poll()
        if stop.wait(0.1):
            sys.exit("stopped before there were answers; `make demo` starts again")


def check(system: System, sent: list[Event], console: Console) -> bool:
    """Compares all answers with a recount; prints the result and returns whether they agree."""
    began = time.perf_counter()
    right = True
    for name, expected in recount(sent).items():
        answered = answers(system, name)
        wrong = differences(answered, expected)
        origin = system.service.views[name].provenance()
        parts = f"version {origin.version} up to {sum(origin.boundary.values()):,}, the speed layer from there"
        if wrong:
            right = False
            console.print(f"[red]✗[/] {name}: {len(wrong)} answers are wrong, the first: {wrong[0]}", highlight=False)
        else:
            console.print(
                f"[green]✓[/] {name}: {len(answered):,} rows ({parts}): equal to the recount", highlight=False
            )
    seconds = time.perf_counter() - began
    console.print(f"[dim]  recounted {len(sent):,} page views in plain Python, {seconds:.1f} s[/]", highlight=False)
    return right


def main() -> None:
    options = argparse.ArgumentParser(
        description="Counts page views by batch and by stream, serves the counts, and recounts."
    )
    options.add_argument("--seconds", type=int, default=90, help="how long; 0 is until Ctrl-C")
    options.add_argument("--port", type=int, default=8787)
    arguments = options.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    shutil.rmtree(DATA, ignore_errors=True)
    console.print("[dim]starting Spark ...[/]")
    deployment = Deployment(HERE / "pageviews.py", Home(DATA))
    with (
        stopped_by_signals() as stop,
        run_system(deployment, Schedule(batch=None), "127.0.0.1", arguments.port, Tokens()) as (system, server),
    ):
        url = server.url
        console.print(f"[green]✓[/] {deployment.app.name} is served at {url}", highlight=False)
        feed = system.service.topics["pageviews"].feed
        sender = Sender(Traffic(datetime.now(UTC)), lambda views: feed.append(views, None, None))
        sender.start()
        console.print("[dim]waiting for the first answers ...[/]")
        wait_for(system, 1, stop)
        watch(system, url, sender, arguments.seconds, stop, console)
        sender.stop()
        stop.clear()
        wait_for(system, len(sender.sent), stop)
        system.jobs.wait()
        console.print(*most_seen(url))
        for job in system.status()["jobs"]:
            how = f"({'incremental' if job['incremental'] else 'full'}, {job['seconds']:.1f} s)"
            console.print(f"[green]✓[/] version {job['version']} of {job['view']} {how}", highlight=False)
        right = check(system, sender.sent, console)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
