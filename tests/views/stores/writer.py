"""A process that feeds a view for ever: micro-batches, cuts, full and incremental versions. It says each step first.

Event number n is a visit of the page n % 5 in the hour n // 50: what an answer must be follows from its last offset.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator

import headrace as hr
from headrace.views.declare.layout import Layout, Partial
from headrace.views.offsets import MicroBatch
from headrace.views.stores import Store, parts

HOUR = 3_600_000_000
LAYOUT = Layout.of("pages", keys={"page": "string"}, aggregations={"n": hr.count()})


def counted(since: int, until: int) -> dict[tuple[str, int], int]:
    """Visits by page and hour."""
    return dict(Counter((f"p{number % 5}", number // 50) for number in range(since, until)))


def partials(since: int, until: int) -> Iterator[Partial]:
    for (page, hour), n in counted(since, until).items():
        yield Partial((page,), hour * HOUR, (hour + 1) * HOUR, (n,))


def feed(url: str, life: str) -> None:
    view = Store(url).view(LAYOUT)
    parts._STEP = 7  # many transactions, to be killed between them
    for number in itertools.count():
        say("add")
        here = view.provenance().reached.get(0, 0)
        view.add(MicroBatch(life, number, {0: here}, {0: here + 17}), list(partials(here, here + 17)))
        if number % 2:
            continue
        say("cut")
        cut = view.cut()
        base = view.versions()[-1] if view.versions() and number % 4 else None
        say("build")
        with view.build(cut, base=base.number if base else None) as version:
            version.load(partials(base.boundary.get(0, 0) if base else 0, cut.boundary[0]))
            say("publish")
            version.publish(keep=2)
        say("roll back")
        if number % 6 == 0 and len(view.versions()) > 1:
            view.rollback(view.versions()[0].number)


def say(step: str) -> None:
    print(step, flush=True)


if __name__ == "__main__":
    feed(*sys.argv[1:])
