"""What `make demo` runs: a site's page views, counted by batch and by stream at once, served, and recounted.

    python examples/demo.py [--seconds 90] [--port 8787]

It starts the system of `pageviews.py` in this process, as `headrace up` does, and sends it views. From the first answer
on it runs for so many seconds (0: until Ctrl-C), computes two batch versions of each view meanwhile, and ends with a
recount of all views in plain Python: the answers must say the same to the last number.
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
from headrace.system.lifecycle import Place, running
from headrace.system.statusdisplay import tables
from headrace.system.system import Schedule
from headrace.views.query.queries import Query

HERE = Path(__file__).parent
DATA = Path("out/demo")
ERROR = 0.06  # of a distinct count, three times its standard error


class Sender:
    """Sends the views of one second each second, until it is stopped; remembers them all for the recount."""

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
    """All rows of a view, by key and minute."""
    return {
        (*row.key.values(), row.window.start): row.values
        for page in system.service.views[name].pages(Query(limit=10_000))
        for row in page.rows
    }


def recount(sent: list[Event]) -> dict[str, dict[tuple[str, int], dict[str, Any]]]:
    """The same answers in plain Python, one view after the other."""
    pages: dict[tuple[str, int], list[Event]] = defaultdict(list)
    countries: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for each in sent:
        minute = int(each["at"].timestamp() // 60) * 60_000_000
        pages[each["page"], minute].append(each)
        countries[each["country"], minute].append(each)
    return {
        "pages": {
            place: {"hits": len(views), "people": len({each["user"] for each in views})}
            for place, views in pages.items()
        },
        "countries": {
            place: {
                "hits": len(views),
                "ms": sum(each["ms"] for each in views),
                "slowest": max(each["ms"] for each in views),
            }
            for place, views in countries.items()
        },
    }


def differences(found: dict[Any, dict[str, Any]], meant: dict[Any, dict[str, Any]]) -> list[str]:
    """Where answers are not those of the recount. Distinct people are an estimate, the others must be exact."""
    wrong = [f"{place} is missing" for place in meant.keys() - found.keys()]
    wrong += [f"{place} should not be there" for place in found.keys() - meant.keys()]
    for place in meant.keys() & found.keys():
        for name, value in meant[place].items():
            got = found[place][name]
            allowed = ERROR * value if name == "people" else 0
            if abs(got - value) > allowed:
                wrong.append(f"{name} of {place} is {got}, but {value} by the recount")
    return wrong


def most_seen(url: str) -> tuple[Text, Table]:
    """The five pages with most views, as anybody can ask for them over HTTP."""
    asked = f"{url}/views/pages?windows=merged&top=hits:5"
    found = json.load(urllib.request.urlopen(asked))
    table = Table("page", "hits", "people", box=None)
    for row in found["rows"]:
        table.add_row(row["key"]["page"], f"{row['values']['hits']:,}", f"{row['values']['people']:,}")
    return Text(f"$ curl '{asked}'"), table


def watch(system: System, url: str, sender: Sender, seconds: int, stop: threading.Event, console: Console) -> None:
    """Shows how far everything is, and computes versions a third and two thirds of the way: in full, then on top.

    On a slow machine it takes longer than so many seconds: both versions are begun while views come.
    """
    began, computed, last = time.monotonic(), 0, -math.inf
    with Live(console=console, auto_refresh=False, transient=True) as live:
        gone = 0.0
        while not stop.is_set() and not (seconds and gone > seconds and computed == 2):
            gone = time.monotonic() - began
            system.look()
            status = system.status()
            idle = all(job["state"] in ("done", "failed") for job in status["jobs"])
            if computed < 2 and idle and gone > (computed + 1) * (seconds or 90) / 3:
                for name in system.app.views:
                    system.compute(name, incremental=computed > 0)
                computed += 1
            total = Text(f"{gone:.0f} s: {len(sender.sent):,} views sent; look at {url}")
            if console.is_terminal:
                live.update(Group(total, tables(status), *most_seen(url)), refresh=True)
            elif gone - last >= 15:
                console.print(total, tables(status))
                last = gone
            stop.wait(0.5)


def reach(system: System, count: int, stop: threading.Event) -> None:
    """Waits until the speed layers have so many views."""
    while any(sum((view.progress().reached or {}).values()) < count for view in system.service.views.values()):
        system.look()
        if stop.wait(0.1):
            sys.exit("stopped before the answers had come; `make demo` begins anew")


def prove(system: System, sent: list[Event], console: Console) -> bool:
    """Compares all answers with a recount."""
    began = time.perf_counter()
    right = True
    for name, meant in recount(sent).items():
        found = answers(system, name)
        wrong = differences(found, meant)
        where = system.service.views[name].provenance()
        parts = f"version {where.version} up to {sum(where.boundary.values()):,}, the speed layer from there"
        if wrong:
            right = False
            console.print(f"[red]✗[/] {name}: {len(wrong)} answers are wrong, the first: {wrong[0]}", highlight=False)
        else:
            console.print(f"[green]✓[/] {name}: {len(found):,} rows ({parts}): as recounted", highlight=False)
    took = time.perf_counter() - began
    console.print(f"[dim]  {len(sent):,} views were recounted in plain Python, {took:.1f} s[/]", highlight=False)
    return right


def main() -> None:
    options = argparse.ArgumentParser(description="Page views by batch and by stream, served, and recounted.")
    options.add_argument("--seconds", type=int, default=90, help="how long; 0 is until Ctrl-C")
    options.add_argument("--port", type=int, default=8787)
    asked = options.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    shutil.rmtree(DATA, ignore_errors=True)
    console.print("[dim]starting Spark ...[/]")
    place = Place(HERE / "pageviews.py", Home(DATA))
    with (
        stopped_by_signals() as stop,
        running(place, Schedule(batch=None), "127.0.0.1", asked.port, Tokens()) as (system, server),
    ):
        url = server.url
        console.print(f"[green]✓[/] the page views of {place.app.name} are served at {url}", highlight=False)
        feed = system.service.topics["pageviews"].feed
        sender = Sender(Traffic(datetime.now(UTC)), lambda views: feed.append(views, None, None))
        sender.start()
        console.print("[dim]waiting for the first answers ...[/]")
        reach(system, 1, stop)
        watch(system, url, sender, asked.seconds, stop, console)
        sender.stop()
        stop.clear()
        reach(system, len(sender.sent), stop)
        system.jobs.wait()
        console.print(*most_seen(url))
        for job in system.status()["jobs"]:
            kind = "what came since" if job["incremental"] else "all"
            said = f"version {job['version']} of {job['view']}, of {kind}"
            console.print(f"[green]✓[/] {said} [dim]{job['seconds']:.1f} s[/]", highlight=False)
        right = prove(system, sender.sent, console)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
