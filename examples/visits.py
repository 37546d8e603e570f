"""Counts unique visitors by page and hour, with a batch view and a speed view whose answers are merged.

    python examples/visits.py

Numbers of unique visitors cannot be added: a visitor of two pages of a site is one visitor of the site. So the views
store sketches of visitors and merge these. Prints the answers of the stream alone, of batch and stream, and of a site.
"""

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import headrace as hr
from headrace.system import System
from headrace.views.declare.app import App
from headrace.views.query.queries import Prefix, Query

visits = hr.Topic("visits", schema="ip string, url string, at timestamp", event_time="at", key="url")


@hr.view(visits, window=hr.FixedWindows("1 hour"), allowed_lateness="365 days")
def visitors(events):
    """Counts the visits and the unique visitors of each page."""
    return events | hr.GroupBy("url").aggregate(hits=hr.count(), people=hr.approx_distinct("ip"))


FIRST = [
    ("192.168.2.1", "foo.com/blog", 1318358),
    ("192.168.4.8", "foo.com/blog", 1318458),
    ("192.168.4.8", "foo.com/about", 1318898),
    ("192.250.6.9", "oof.com/item", 1318898),
    ("192.250.6.9", "foo.com/blog", 1818123),
]
LATER = [
    ("152.214.1.2", "goo.com/idx", 2010911),
    ("182.228.1.2", "foo.com/blog", 2012918),
    ("192.168.4.8", "foo.com/about", 2318898),
    ("192.250.6.9", "oof.com/item", 2318898),
]


def send(system: System, requests: list[tuple[str, str, int]]) -> None:
    """Appends visits to the topic, as POST /topics/visits does, and waits until the speed layer has them."""
    events = [{"ip": ip, "url": url, "at": datetime.fromtimestamp(at, UTC).isoformat()} for ip, url, at in requests]
    system.service.topics["visits"].append("\n".join(map(json.dumps, events)).encode())
    system.catch_up()


def show(system: System, title: str, query: Query = Query()) -> None:
    answer = system.answer("visitors", query)
    version, reached = answer.provenance.version or "none", sum(answer.provenance.reached.values())
    print(f"{title} (batch version {version}, speed layer up to {reached} visits)")
    for row in answer.rows:
        hour = row.window.start // 3_600_000_000
        print(f"  {row.key.get('url', 'foo.com'):14} hour {hour}: {row.values['people']} people")


def main() -> None:
    with System.at(Path(tempfile.mkdtemp()), App.of(globals())) as system:
        send(system, FIRST)
        show(system, "counted by the stream")
        system.begin("visitors", incremental=False)
        system.jobs.wait()
        send(system, LATER)
        show(system, "batch and stream merged")
        of_site = Query(key={"url": Prefix("foo.com/")}, by=(), until=367 * 3600)
        show(system, "all of foo.com in hour 366", of_site)


if __name__ == "__main__":
    main()
