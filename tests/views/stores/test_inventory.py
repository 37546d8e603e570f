"""The examples of the Lambda architecture with their exact answers: who lives where, and who visited what."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.model.sketches import ApproxDistinctFn
from headrace.views.declare.layout import Layout, Partial
from headrace.views.offsets import MicroBatch
from headrace.views.query.queries import Prefix, Query
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView

SECOND, HOUR = 1_000_000, 3600 * 1_000_000


class Visit(NamedTuple):
    user: str
    url: str
    time: int


VISITS = [
    Visit("192.168.2.1", "foo.com/blog", 1318358),
    Visit("192.168.4.8", "foo.com/blog", 1318458),
    Visit("192.168.4.8", "foo.com/about", 1318898),
    Visit("192.250.6.9", "oof.com/item", 1318898),
    Visit("192.250.6.9", "foo.com/blog", 1818123),
]
LATER = [
    Visit("152.214.1.2", "goo.com/idx", 2010911),
    Visit("182.228.1.2", "foo.com/blog", 2012918),
    Visit("192.168.4.8", "foo.com/about", 2318898),
    Visit("192.250.6.9", "oof.com/item", 2318898),
]
UNIQUES = {
    ("foo.com/blog", 366): 2,
    ("foo.com/about", 366): 1,
    ("oof.com/item", 366): 1,
    ("foo.com/blog", 505): 1,
}
LATER_UNIQUES = {
    ("goo.com/idx", 558): 1,
    ("foo.com/blog", 559): 1,
    ("foo.com/about", 644): 1,
    ("oof.com/item", 644): 1,
}


def sketches(visits: list[Visit]) -> list[Partial]:
    fn = ApproxDistinctFn()
    groups: dict[tuple[str, int], list[str]] = {}
    for visit in visits:
        groups.setdefault((visit.url, visit.time // 3600), []).append(visit.user)
    return [
        Partial((url,), hour * HOUR, (hour + 1) * HOUR, (len(users), fn.dump(fn.add_all(fn.zero(), users))))
        for (url, hour), users in groups.items()
    ]


def by_hour(view: StoredView, **query: Any) -> dict[Any, Any]:
    rows = view.answer(Query(**query)).rows
    return {(*row.key.values(), row.window.start // HOUR): row.values["people"] for row in rows}


@pytest.fixture
def visitors(store: Store) -> StoredView:
    aggregations = {"hits": hr.count(), "people": hr.approx_distinct("user")}
    return store.view(
        Layout.of("visitors", keys={"url": "string"}, aggregations=aggregations, window=hr.FixedWindows("1 hour"))
    )


def test_uniques_by_hour_while_the_batch_catches_up(visitors: StoredView) -> None:
    visitors.add(MicroBatch("s", 0, {}, {0: 2}), sketches(VISITS[:2]))
    visitors.add(MicroBatch("s", 1, {0: 2}, {0: 5}), sketches(VISITS[2:]))
    assert by_hour(visitors) == UNIQUES
    with visitors.build(visitors.cut()) as version:
        version.load(sketches(VISITS))
        version.publish()
    assert by_hour(visitors) == UNIQUES
    visitors.add(MicroBatch("s", 2, {0: 5}, {0: 9}), sketches(LATER))
    assert by_hour(visitors) == UNIQUES | LATER_UNIQUES
    with visitors.build(visitors.cut(), base=1) as version:
        version.load(sketches(LATER))
        version.publish()
    assert by_hour(visitors) == UNIQUES | LATER_UNIQUES
    assert by_hour(visitors, key={"url": "foo.com/blog"}, until=600 * 3600) == {
        ("foo.com/blog", 366): 2,
        ("foo.com/blog", 505): 1,
        ("foo.com/blog", 559): 1,
    }


def test_uniques_of_a_domain_do_not_add_up(visitors: StoredView) -> None:
    visitors.add(MicroBatch("s", 0, {}, {0: 3}), sketches(VISITS[:3]))
    with visitors.build(visitors.cut()) as version:
        version.load(sketches(VISITS[:3]))
        version.publish()
    visitors.add(MicroBatch("s", 1, {0: 3}, {0: 5}), sketches(VISITS[3:]))
    pages = by_hour(visitors, key={"url": Prefix("foo.com/")}, until=367 * 3600)
    assert sum(pages.values()) == 3
    assert by_hour(visitors, key={"url": Prefix("foo.com/")}, by=()) == {(366,): 2, (505,): 1}
    (ever,) = visitors.answer(Query(key={"url": Prefix("foo.com/")}, by=(), across_windows=True)).rows
    assert ever.values == {"hits": 4, "people": 3}


class Fact(NamedTuple):
    number: int
    person: str
    city: str
    time: int
    corrects: int | None = None


FACTS = [
    Fact(0, "Sally", "Philadelphia", 1318358),
    Fact(1, "Bob", "Chicago", 1237921),
    Fact(2, "Sally", "New York", 1338812),
]
CORRECTION = Fact(3, "Bob", "New York", 1338812, corrects=2)


def moves(facts: list[Fact]) -> list[Partial]:
    """All but those that a later fact corrects; one window for each second, so that answers may be as of any."""
    wrong = {fact.corrects for fact in facts}
    fn = hr.last("city").fn
    return [
        Partial((fact.person,), fact.time * SECOND, (fact.time + 1) * SECOND, (fn.dump(fn.add([], timed(fact))),))
        for fact in facts
        if fact.number not in wrong
    ]


def timed(fact: Fact) -> tuple[int, str]:
    return (fact.time * SECOND, fact.city)


def as_of(view: StoredView, time: int) -> dict[str, str]:
    rows = view.answer(Query(until=time + 1, across_windows=True)).rows
    return {row.key["person"]: row.values["city"] for row in rows}


def test_where_sally_and_bob_live_as_of_any_time(store: Store) -> None:
    layout = Layout.of("homes", keys={"person": "string"}, aggregations={"city": hr.last("city")}, window="1 second")
    homes = store.view(layout)
    homes.add(MicroBatch("s", 0, {}, {0: 3}), moves(FACTS))
    assert as_of(homes, 1237920) == {}
    assert as_of(homes, 1318357) == {"Bob": "Chicago"}
    assert as_of(homes, 1338811) == {"Bob": "Chicago", "Sally": "Philadelphia"}
    assert as_of(homes, 1338812) == {"Bob": "Chicago", "Sally": "New York"}
    homes.add(MicroBatch("s", 1, {0: 3}, {0: 4}), moves([CORRECTION]))
    with homes.build(homes.cut()) as version:
        version.load(moves([*FACTS, CORRECTION]))
        version.publish()
    assert as_of(homes, 1338811) == {"Bob": "Chicago", "Sally": "Philadelphia"}
    assert as_of(homes, 1338812) == {"Bob": "New York", "Sally": "Philadelphia"}
