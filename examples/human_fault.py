"""A fault of ours, and how it is mended: a view that counts double, the right one, and a recompute of all events.

    python examples/human_fault.py

What is wrong in a view is wrong in rows that are computed; the events themselves were never touched.
"""

import json
import tempfile
from pathlib import Path

import headrace as hr
from headrace.system import System
from headrace.views.declare.app import App

clicks = hr.Topic("clicks", schema="user string, button string, at timestamp", event_time="at")


def deployed(function) -> App:
    """The app, with this function as its view `presses`."""
    function.__name__ = "presses"
    return App.of({"presses": hr.view(clicks)(function)})


def wrong(events):
    twice = hr.Flatten()  # somebody meant to add a second topic here
    return (events, events) | twice | hr.GroupBy("button").aggregate(n=hr.count())


def right(events):
    return events | hr.GroupBy("button").aggregate(n=hr.count())


def press(system: System, *buttons: str) -> None:
    events = [{"user": "ann", "button": button, "at": "2026-03-01T09:30:00Z"} for button in buttons]
    system.service.topics["clicks"].append("\n".join(map(json.dumps, events)).encode())
    system.catch_up()


def show(system: System, what: str) -> None:
    answer = system.answer("presses")
    found = ", ".join(f"{row.key['button']} {row.values['n']}" for row in answer.rows)
    print(f"{what:44} {found:16} (batch version {answer.provenance.version or 'none'})")


def compute(system: System) -> None:
    system.begin("presses", incremental=False)
    system.jobs.wait()


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    with System.at(folder, deployed(wrong)) as system:
        press(system, "buy", "buy", "help")
        compute(system)
        press(system, "buy")
        show(system, "deployed: every click counts twice")
    with System.at(folder, deployed(right)) as system:
        press(system, "help")
        show(system, "corrected: what comes now counts once")
        compute(system)
        show(system, "recomputed from all events: right")
        press(system, "buy")
        show(system, "and stays right")
        system.service.views["presses"].rollback(1)
        show(system, "rolled back, to see what it was")
        system.service.views["presses"].rollback(2)
        show(system, "and forth again")


if __name__ == "__main__":
    main()
