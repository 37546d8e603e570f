"""What stores promise, case by case, on SQLite and on PostgreSQL; the properties are in test_store_properties."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import threading
from typing import Any

import pytest

import headrace as hr
from headrace.views.declare.layout import Layout, Partial
from headrace.views.errors import ViewError
from headrace.views.offsets import MicroBatch
from headrace.views.query.queries import Provenance, Query
from headrace.views.stores import Store, reading, versions
from headrace.views.stores.store import StoredView
from headrace.views.stores.storetables import FORMAT
from headrace.views.stores.versions import Cut

HOUR = 3_600_000_000
HITS = Layout.of("hits", keys={"url": "string"}, aggregations={"n": hr.count()}, window=hr.FixedWindows("1 hour"))


def hits(url: str, n: int, hour: int = 0) -> Partial:
    return Partial((url,), hour * HOUR, (hour + 1) * HOUR, (n,))


def batch(number: int, since: int, until: int, stream: str = "s", watermark: int | None = None) -> MicroBatch:
    return MicroBatch(stream, number, {0: since}, {0: until}, watermark)


def counts(view: StoredView, **query: Any) -> dict[str, int]:
    return {row.key["url"]: row.values["n"] for row in view.answer(Query(**query)).rows}


@pytest.fixture
def view(store: Store) -> StoredView:
    return store.view(HITS)


def test_an_answer_says_where_it_comes_from(view: StoredView) -> None:
    assert view.provenance() == Provenance(None, {}, range(1, 2), -1, {}, None, None, None)
    view.add(batch(0, 0, 3, watermark=50), [hits("a", 3)])
    with view.build(view.cut()) as version:
        version.load([hits("a", 3)])
        version.publish()
    view.add(batch(1, 3, 5, watermark=70), [hits("a", 2)])
    view.clock = lambda: 1_500_000
    answer = view.answer(Query(key={"url": "a"}))
    assert answer.provenance == Provenance(1, {0: 3}, range(2, 3), 1, {0: 5}, 70, 1_000_000, 500_000)
    assert [row.values for row in answer.rows] == [{"n": 5}]
    assert counts(view, layer="batch") == {"a": 3}
    assert counts(view, layer="speed") == {"a": 2}


def test_pages_are_of_one_moment(view: StoredView) -> None:
    view.add(batch(0, 0, 3), [hits("a", 1), hits("b", 1), hits("c", 1)])
    pages = view.pages(Query(limit=2))
    found = [next(pages)]
    view.add(batch(1, 3, 6), [hits("b", 1), hits("c", 1), hits("d", 1)])
    found += pages
    assert [[(row.key["url"], row.values["n"]) for row in page.rows] for page in found] == [
        [("a", 1), ("b", 1)],
        [("c", 1)],
    ]
    assert [page.provenance.reached for page in found] == [{0: 3}, {0: 3}]
    assert counts(view) == {"a": 1, "b": 2, "c": 2, "d": 1}


def test_a_bug_is_repaired_by_a_recompute_or_a_rollback(view: StoredView) -> None:
    view.add(batch(0, 0, 2), [hits("a", 2)])
    with view.build(view.cut()) as right:
        right.load([hits("a", 2)])
        right.publish()
    view.add(batch(1, 2, 3), [hits("a", 2)])  # the bug counts double, in both layers
    with view.build(view.cut()) as wrong:
        wrong.load([hits("a", 6)])
        wrong.publish()
    assert counts(view) == {"a": 6}
    assert view.rollback() == 1
    assert counts(view) == {"a": 4}  # the version is right, what the speed layer did is not
    with view.build(view.cut()) as repaired:
        repaired.load([hits("a", 3)])
        repaired.publish()
    assert counts(view) == {"a": 3}
    assert [(each.number, each.current) for each in view.versions()] == [(1, False), (2, False), (3, True)]


def test_what_was_not_kept_cannot_be_pointed_to(view: StoredView) -> None:
    with pytest.raises(ViewError, match="has no older version; there are none"):
        view.rollback()
    for _ in range(3):
        with view.build(view.cut()) as version:
            version.publish(keep=1)
    with pytest.raises(ViewError, match=r"has no version 1; there are \[3\]"):
        view.rollback(1)


def test_a_version_is_discarded_by_an_error_and_by_the_next_one(view: StoredView) -> None:
    with pytest.raises(ZeroDivisionError), view.build(view.cut()) as version:
        version.load([hits("a", 1)])
        raise ZeroDivisionError
    stale = view.build(view.cut())
    stale.load([hits("a", 1)])
    with view.build(view.cut()) as version:
        version.load([hits("a", 7)])
        version.publish()
    for late in (lambda: stale.load([hits("b", 1)]), stale.publish):
        with pytest.raises(ViewError, match="version 2 was discarded meanwhile"):
            late()
    stale.discard()
    assert counts(view) == {"a": 7}
    with view.database.reading() as connection:
        assert connection.exec_driver_sql('SELECT DISTINCT "__part" FROM view_hits').scalars().all() == [3]


def test_a_version_is_checked_before_it_answers(view: StoredView) -> None:
    with view.build(view.cut()) as version:
        version.load([hits("a", 1), hits("b", 1)])
        with view.database.writing() as connection:
            connection.exec_driver_sql("DELETE FROM view_hits WHERE url = 'b'")
        with pytest.raises(ViewError, match="version 1 has 1 rows, but 2 were loaded"):
            version.publish()
    with view.build(view.cut()) as version, pytest.raises(ViewError, match="one occurs twice"):
        version.load([hits("a", 1), hits("a", 1)])
    assert view.versions() == []


def test_an_increment_needs_a_version_from_before_the_cut(view: StoredView) -> None:
    early = view.cut()
    view.add(batch(0, 0, 1), [hits("a", 1)])
    with view.build(view.cut()) as version:
        version.load([hits("a", 1)])
        version.publish(keep=1)
    for base in (1, 9):
        with pytest.raises(ViewError, match="are deleted; make a new cut"):
            view.build(early, base=base)
    with pytest.raises(ViewError, match="has no version 9 from before the cut"):
        view.build(view.cut(), base=9)
    with pytest.raises(ViewError, match="are deleted; make a new cut"):
        view.build(Cut(0, {}))


def test_an_increment_copies_nothing_and_few_parts_make_a_version(
    view: StoredView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_SMALL", 0)
    held, base = [], None
    for number in range(12):
        view.add(batch(number, number, number + 1), [hits("a", 1)])
        with view.build(view.cut(), base=base) as version:
            version.load([hits("a", 1), hits(f"u{number}", 1)] if base else [hits(f"u{each}", 0) for each in range(50)])
            version.publish(keep=2)
        base = version.number
        with view.database.reading() as connection:
            held.append(connection.exec_driver_sql('SELECT count(*) FROM view_hits WHERE "__part" > 0').scalar_one())
        assert counts(view, layer="batch", key={"url": "a"}) == ({"a": number} if number else {})
    # Fifty rows that stay where they are, and of the rest, which the two versions share where they can, a few.
    assert held[:4] == [50, 52, 55, 55 + 2]
    assert max(held) < 90
    assert sum(counts(view, layer="batch").values()) == 2 * 11
    assert view.versions()[-1].rows == 51  # of the fifty urls and "a", in however many parts


def test_a_stored_view_keeps_its_layout(store: Store, view: StoredView) -> None:
    assert store.names() == ["hits"]
    for change in ({"window": "FixedWindows('1 d')"}, {"kinds": ("bytes",)}):
        with pytest.raises(ViewError, match="the two do not merge; choose another name for the new one"):
            store.view(dataclasses.replace(HITS, **change))


def test_rows_without_events_are_refused(view: StoredView) -> None:
    with pytest.raises(ViewError, match="its offsets have no event"):
        view.add(batch(0, 3, 3), [hits("a", 1)])
    with pytest.raises(ViewError, match="before its beginning"):
        batch(0, 3, 2)


def test_keys_of_every_type_come_back(store: Store) -> None:
    kinds = {"s": "string", "i": "int", "b": "boolean", "d": "date", "t": "timestamp", "x": "binary"}
    view = store.view(Layout.of("typed", keys=kinds, aggregations={"n": hr.count()}))
    late = dt.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=dt.UTC)
    keys: list[tuple[Any, ...]] = [
        ("a\0\1é", -5, True, dt.date(2026, 1, 31), late, b"\0\xff"),
        (None,) * 6,
        ("", 0, False, dt.date(1970, 1, 1), dt.datetime(1970, 1, 1, tzinfo=dt.UTC), b""),
    ]
    partials = [Partial(key, 0, 1, (1,)) for key in keys]
    view.add(batch(0, 0, 3), partials)
    with view.build(view.cut()) as version:
        version.load(partials)
        version.publish()
    view.add(batch(1, 3, 6), partials)
    for key in keys:
        (row,) = view.answer(Query(key=dict(zip(kinds, key, strict=True)))).rows
        assert (tuple(row.key.values()), row.values) == (key, {"n": 2})
    assert len(view.answer(Query()).rows) == 3


def test_sums_of_floats_may_be_nan(store: Store) -> None:
    weights = Layout.of("w", keys={}, aggregations={"w": hr.sum("x")}, columns={"x": "double"})
    view = store.view(weights)
    view.add(
        batch(0, 0, 1), [Partial((), 0, 1, (math.nan,)), Partial((), 1, 2, (0.1,)), Partial((), 2, 3, (math.inf,))]
    )
    view.add(batch(1, 1, 2), [Partial((), start, start + 1, (0.2,)) for start in range(3)])
    nan, plain, infinite = (row.values["w"] for row in view.answer(Query()).rows)
    assert (math.isnan(nan), plain, infinite) == (True, 0.1 + 0.2, math.inf)
    best = view.answer(Query(top=("w", 3))).rows
    assert [row.window.start for row in best] == [2, 1, 0]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"key": {"user": "x"}}, "has no key 'user'; there are url"),
        ({"key": {"url; drop table hits": "x"}}, "has no key"),
        ({"key": {"url": 5}}, "the key 'url' is a string, got 5"),
        ({"key": {"url": "\ud800"}}, "the key 'url' is a string"),
        ({"by": ("n",)}, "has no key 'n'"),
        ({"top": ("url", 3)}, "has no aggregation 'url'; there are n"),
        ({"after": "bm8="}, "is not the end of a page of 'hits'"),
        ({"after": "é"}, "is not the end of a page of 'hits'"),
    ],
)
def test_what_a_view_cannot_be_asked(view: StoredView, query: dict[str, Any], reason: str) -> None:
    with pytest.raises(ViewError, match=reason):
        view.answer(Query(**query))


def test_answers_that_merge_too_much_are_refused(view: StoredView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_READ", 3)
    view.add(batch(0, 0, 9), [hits(f"u{number}", number) for number in range(1, 5)])
    with pytest.raises(ViewError, match="would merge more than 3 rows"):
        view.answer(Query(by=()))
    assert counts(view, top=("n", 2)) == {"u4": 4, "u3": 3}  # the database finds the largest counts itself


def test_a_batch_layer_may_be_away_for_long(view: StoredView) -> None:
    for number in range(120):
        view.add(batch(number, number, number + 1), [hits("a", 1), hits(f"u{number}", number)])
        view.cut()
    assert view.provenance().generations == range(1, 122)
    assert counts(view, key={"url": "a"}) == {"a": 120}
    assert list(counts(view, top=("n", 3))) == ["a", "u119", "u118"]
    assert len(counts(view, top=("n", 10_000))) == 121


def test_values_are_values_whatever_they_say(view: StoredView) -> None:
    evil = "'; DROP TABLE view_hits; --"
    view.add(batch(0, 0, 1), [hits(evil, 1)])
    assert counts(view, key={"url": evil}) == {evil: 1}


def test_readers_see_each_event_once_while_everything_is_written(url: str, store: Store, view: StoredView) -> None:
    """A reader asks all the while; the number of events it sees must be that of the offsets the answer reaches."""
    done, wrong, asked = threading.Event(), [], 0
    other = Store(url)
    reader = other.view(HITS)

    def poll() -> None:
        nonlocal asked
        while not done.is_set():
            answer = reader.answer(Query(by=(), across_windows=True))
            seen = sum(row.values["n"] for row in answer.rows)
            asked += 1
            if seen != answer.provenance.reached.get(0, 0):
                wrong.append((seen, answer.provenance))

    thread = threading.Thread(target=poll)
    thread.start()
    base: int | None = None
    covered = 0
    try:
        for number in range(30):
            view.add(batch(number, number * 10, number * 10 + 10), [hits(f"u{each}", 2) for each in range(5)])
            if number % 3 == 0:
                cut = view.cut()
                until = cut.boundary[0]
                with view.build(cut, base=base) as version:
                    version.load([hits(f"u{each}", (until - covered) // 5) for each in range(5)])
                    version.publish(keep=2)
                base, covered = version.number, until
            if number % 10 == 9:
                view.rollback()
    finally:
        done.set()
        thread.join()
        other.close()
    assert wrong == []
    assert asked > 10


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("UPDATE headrace_store SET format = 2", "has format 2, and this version of Headrace reads format 1"),
        ("DROP TABLE headrace_store", "has a format without a number, and"),  # as the first stores were
    ],
)
def test_a_store_of_another_format_is_refused_and_left_as_it_is(
    url: str, view: StoredView, made: str, said: str
) -> None:
    view.add(batch(0, 0, 3), [hits("a", 3)])
    with view.database.writing() as connection:
        connection.exec_driver_sql(made)
    with pytest.raises(ViewError, match=said) as refused:
        Store(url)
    assert "move views.db of the system away, or use --store) and compute the views again" in str(refused.value)
    with view.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT name FROM headrace_views").scalar() == "hits"


def test_a_store_is_opened_again_with_the_format_that_it_has(url: str, view: StoredView) -> None:
    for _ in range(2):
        Store(url).close()
    with view.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT format FROM headrace_store").all() == [(FORMAT,)]
