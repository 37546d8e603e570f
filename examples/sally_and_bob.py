"""Shows who lived where at any time: facts are only added, and later facts correct wrong ones.

    python examples/sally_and_bob.py

The view `homes` has the last known city of each person. A query up to a time gives the state as of that time. Prints it
for three times: with the facts as first stated, and after a correction and a recompute.
"""

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import headrace as hr
from headrace.system import System
from headrace.views.declare.app import App
from headrace.views.query.queries import Query

facts = hr.Topic("facts", schema="number bigint, person string, city string, since timestamp", event_time="since")

# The latest move counts; of two facts about one move, the one that was stated later.
STATED = "concat_ws(' ', lpad(unix_seconds(since), 12, '0'), lpad(number, 6, '0'), city)"


@hr.view(facts, window=hr.FixedWindows("1 second"), allowed_lateness="365 days")
def homes(events):
    return events | hr.Select("person", stated=STATED) | hr.GroupBy("person").aggregate(stated=hr.max("stated"))


FACTS = [("Sally", "Philadelphia", 1318358), ("Bob", "Chicago", 1237921), ("Sally", "New York", 1338812)]
CORRECTION = [("Sally", "Philadelphia", 1338812), ("Bob", "New York", 1338812)]  # it was Bob who moved


def state(system: System, moves: list[tuple[str, str, int]], first: int) -> None:
    """Sends facts, numbered from `first`, and waits until the speed layer has them."""
    events = [
        {"number": first + n, "person": person, "city": city, "since": datetime.fromtimestamp(since, UTC).isoformat()}
        for n, (person, city, since) in enumerate(moves)
    ]
    system.service.topics["facts"].append("\n".join(map(json.dumps, events)).encode())
    system.catch_up()


def as_of(system: System, time: int) -> dict[str, str]:
    """Asks where everybody lived at a time: merges the facts about moves until then."""
    rows = system.answer("homes", Query(until=time + 1, across_windows=True)).rows
    return {row.key["person"]: row.values["stated"].split(" ", 2)[2] for row in rows}


def show(system: System, title: str) -> None:
    print(title)
    for time in (1318357, 1338811, 1338812):
        lived = ", ".join(f"{person} in {city}" for person, city in as_of(system, time).items())
        print(f"  as of {time}: {lived}")


def main() -> None:
    with System.at(Path(tempfile.mkdtemp()), App.of(globals())) as system:
        state(system, FACTS, first=1)
        show(system, "as first stated")
        state(system, CORRECTION, first=4)
        system.begin("homes", incremental=False)
        system.jobs.wait()
        show(system, "as corrected, recomputed from all facts")


if __name__ == "__main__":
    main()
