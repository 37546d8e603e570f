"""Runs the examples of views on the suite's session: they print the answers that are known."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any

# Examples are scripts in a folder of their own; the workers must find them, too.
import demo
import human_fault
import pytest
import sally_and_bob
import traffic
import visits

from tests.scale import only_full


@only_full("another example of the same views")
def test_visitors_do_not_add_up(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    visits.main()
    assert capsys.readouterr().out.splitlines() == [
        "counted by the stream (batch version none, speed layer up to 5 visits)",
        "  foo.com/about  hour 366: 1 people",
        "  foo.com/blog   hour 366: 2 people",
        "  foo.com/blog   hour 505: 1 people",
        "  oof.com/item   hour 366: 1 people",
        "batch and stream merged (batch version 1, speed layer up to 9 visits)",
        "  foo.com/about  hour 366: 1 people",
        "  foo.com/about  hour 644: 1 people",
        "  foo.com/blog   hour 366: 2 people",
        "  foo.com/blog   hour 505: 1 people",
        "  foo.com/blog   hour 559: 1 people",
        "  goo.com/idx    hour 558: 1 people",
        "  oof.com/item   hour 366: 1 people",
        "  oof.com/item   hour 644: 1 people",
        "all of foo.com in hour 366 (batch version 1, speed layer up to 9 visits)",
        "  foo.com        hour 366: 2 people",
    ]


def test_where_sally_and_bob_live(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    sally_and_bob.main()
    assert capsys.readouterr().out.splitlines() == [
        "as first stated",
        "  as of 1318357: Bob in Chicago",
        "  as of 1338811: Bob in Chicago, Sally in Philadelphia",
        "  as of 1338812: Bob in Chicago, Sally in New York",
        "as corrected, recomputed from all facts",
        "  as of 1318357: Bob in Chicago",
        "  as of 1338811: Bob in Chicago, Sally in Philadelphia",
        "  as of 1338812: Bob in New York, Sally in Philadelphia",
    ]


@pytest.mark.slow("an example on Spark")
def test_a_human_fault_is_repaired_by_a_recompute(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    human_fault.main()
    assert capsys.readouterr().out.splitlines() == [
        "fault deployed: each click counts twice      buy 6, help 2    (batch version 1)",
        "corrected: new clicks count once             buy 6, help 3    (batch version 1)",
        "recomputed from all events: all are right    buy 3, help 2    (batch version 2)",
        "new clicks count once on top of it           buy 4, help 2    (batch version 2)",
        "rolled back to version 1: the fault again    buy 7, help 3    (batch version 1)",
        "back to version 2: right again               buy 4, help 2    (batch version 2)",
    ]


BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_traffic_is_skewed_late_and_repeated() -> None:
    seconds = list(islice(traffic.Traffic(BEGAN, rate=200).seconds(), 45))
    assert seconds == list(islice(traffic.Traffic(BEGAN, rate=200).seconds(), 45))
    assert len(seconds[35]) > 4 * len(seconds[5])
    views = [view for second in seconds for view in second]
    by_page = {page: sum(view["page"] == page for view in views) for page in ("/0", "/docs/2")}
    assert by_page["/0"] > 2 * by_page["/docs/2"] > 100
    late = sum((BEGAN - view["at"]).total_seconds() > 60 for view in views)
    assert 0.01 < late / len(views) < 0.05
    assert len({tuple(view.values()) for view in views}) < len(views)


def test_the_demo_finds_what_differs_from_its_recount() -> None:
    sent = list(next(traffic.Traffic(BEGAN, rate=100).seconds()))
    for meant in demo.recount(sent).values():
        assert demo.differences(meant, meant) == []
        place, values = next(iter(meant.items()))
        missing = {other: each for other, each in meant.items() if other != place}
        assert demo.differences(missing, meant) == [f"{place} is missing"]
        assert demo.differences(meant, missing) == [f"{place} should not exist"]
        more = {**meant, place: {**values, "hits": values["hits"] + 1}}
        assert demo.differences(more, meant) == [
            f"hits of {place} is {values['hits'] + 1}, but {values['hits']} in the recount"
        ]
