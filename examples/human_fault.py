"""Repairs a human fault: deploys a view that counts twice, corrects it, and recomputes it from all events.

    python examples/human_fault.py

Views are computed from events, and events never change: after the correction, a new batch version computed from all
events has the right answers. Prints the view's answers after each step.
"""

import json
import tempfile
from pathlib import Path

import headrace as hr
from headrace.system import System
from headrace.views.declare.app import App

clicks = hr.Topic("clicks", schema="user string, button string, at timestamp", event_time="at")


def app_with(function) -> App:
    """Makes the app, with this function as its view `presses`."""
    function.__name__ = "presses"
    return App.of({"presses": hr.view(clicks)(function)})


def count_twice(events):
    doubled = (events, events) | hr.Flatten()  # the fault: the second one should have been another topic
    return doubled | hr.GroupBy("button").aggregate(n=hr.count())


def count(events):
    return events | hr.GroupBy("button").aggregate(n=hr.count())


def press(system: System, *buttons: str) -> None:
    """Sends a click on each of the buttons, and waits until the speed layer has counted them."""
    events = [{"user": "ann", "button": button, "at": "2026-03-01T09:30:00Z"} for button in buttons]
    system.service.topics["clicks"].append("\n".join(map(json.dumps, events)).encode())
    system.catch_up()


def show(system: System, step: str) -> None:
    answer = system.answer("presses")
    counts = ", ".join(f"{row.key['button']} {row.values['n']}" for row in answer.rows)
    print(f"{step:44} {counts:16} (batch version {answer.provenance.version or 'none'})")


def compute(system: System) -> None:
    """Computes a batch version of the view from all events."""
    system.begin("presses", incremental=False)
    system.jobs.wait()


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    with System.at(folder, app_with(count_twice)) as system:
        press(system, "buy", "buy", "help")
        compute(system)
        press(system, "buy")
        show(system, "fault deployed: each click counts twice")
    with System.at(folder, app_with(count)) as system:
        press(system, "help")
        show(system, "corrected: new clicks count once")
        compute(system)
        show(system, "recomputed from all events: all are right")
        press(system, "buy")
        show(system, "new clicks count once on top of it")
        system.service.views["presses"].rollback(1)
        show(system, "rolled back to version 1: the fault again")
        system.service.views["presses"].rollback(2)
        show(system, "back to version 2: right again")


if __name__ == "__main__":
    main()
