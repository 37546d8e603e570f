"""Holds stores to a recount of all events: whatever the layers do, and whenever one asks, each event counts once."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.views.declare.layout import Partial
from headrace.views.errors import ViewError
from headrace.views.offsets import MicroBatch, Offsets
from headrace.views.query.queries import Answer, Between, Prefix, Query
from headrace.views.stores import Store, parts, versions
from headrace.views.stores.store import StoredView
from headrace.views.stores.versions import Build
from tests.scale import examples
from tests.views.reference import LAYOUT, SIZE, Event, partials_of, recount

SITES = st.sampled_from([None, "", "a", "a/", "a/b", "ab", "b", "\0", "\1", "é", "\U0010ffff"])
CODES = st.sampled_from([None, 0, 1, -(2**63), 2**63 - 1])
PARTITIONS = 2


@st.composite
def some_events(draw: st.DrawFn, most: int = 6) -> list[tuple[Any, ...]]:
    return draw(
        st.lists(st.tuples(SITES, CODES, st.integers(0, 3), st.sampled_from("uvw"), st.integers(-5, 5)), max_size=most)
    )


def ranges(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Between]:
    return st.builds(Between, values, values)


def event_of(number: int, drawn: tuple[Any, ...]) -> Event:
    site, code, window, user, amount = drawn
    return Event(site, code, window * SIZE + number, user, amount)


def rows_of(answer: Answer) -> list[tuple[Any, ...]]:
    return [(row.key, tuple(row.window), row.values) for row in answer.rows]


class Lambda(RuleBasedStateMachine):
    """A topic, a speed layer, a batch layer, and people who roll back; any of them may fail between two steps."""

    url: str  # set by the test that runs the machine; each example has a view of its own there
    names = itertools.count()

    @initialize()
    def open(self) -> None:
        self.layout = dataclasses.replace(LAYOUT, name=f"visits{next(self.names)}")
        self.topic: dict[int, list[Event]] = {partition: [] for partition in range(PARTITIONS)}
        self.taken: Offsets = dict.fromkeys(range(PARTITIONS), 0)
        self.batches: list[tuple[MicroBatch, list[Partial]]] = []
        self.stream, self.number, self.numbered = 0, 0, 0
        self.building: Build | None = None
        self.waiting: list[Partial] = []
        self.reopen()

    def reopen(self) -> None:
        self.store = Store(self.url, clock=lambda: 0)
        self.view: StoredView = self.store.view(self.layout)

    def events(self, since: Offsets, until: Offsets) -> list[Event]:
        return [
            event
            for partition, events in self.topic.items()
            for event in events[since.get(partition, 0) : until.get(partition, 0)]
        ]

    @rule(partition=st.integers(0, PARTITIONS - 1), drawn=some_events())
    def produce(self, partition: int, drawn: list[tuple[Any, ...]]) -> None:
        for each in drawn:
            self.topic[partition].append(event_of(self.numbered, each))
            self.numbered += 1

    def next_batch(self, share: float) -> tuple[MicroBatch, list[Partial]]:
        until = {
            partition: self.taken[partition] + round(share * (len(events) - self.taken[partition]))
            for partition, events in self.topic.items()
        }
        events = self.events(self.taken, until)
        half = len(events) // 2  # two tasks may speak of the same key and window
        found = partials_of(events[:half]) + partials_of(events[half:])
        return MicroBatch(f"s{self.stream}", self.number, self.taken, until), found

    @rule(share=st.sampled_from([0.5, 1.0]), told=st.booleans())
    def micro_batch(self, share: float, told: bool) -> None:
        batch, found = self.next_batch(share)
        self.taken, self.number = batch.until, self.number + 1
        if found or told:  # of a batch without rows a view may hear nothing
            assert self.view.add(batch, found)
            self.batches.append((batch, found))

    @rule(share=st.sampled_from([0.5, 1.0]))
    def failed_micro_batch(self, share: float) -> None:
        batch, found = self.next_batch(share)
        broken = Partial((1,), 0, 1, ())

        with pytest.raises(ViewError):
            self.view.add(batch, [*found, broken])

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        batch, found = data.draw(st.sampled_from(self.batches))
        if batch.stream == f"s{self.stream}":
            assert not self.view.add(batch, found)
        elif batch.until != batch.since:
            with pytest.raises(ViewError, match="begin the stream there"):
                self.view.add(batch, found)

    @rule()
    def another_stream(self) -> None:
        self.stream, self.number = self.stream + 1, 0
        self.batches = []
        self.taken = dict.fromkeys(range(PARTITIONS), 0) | dict(self.view.provenance().reached)

    @rule()
    def cut(self) -> None:
        cut = self.view.cut()
        assert cut == self.view.cut()

    @precondition(lambda self: self.building is None)
    @rule(incremental=st.booleans(), data=st.data())
    def begin_version(self, incremental: bool, data: st.DataObject) -> None:
        cut, since, base = self.view.cut(), {}, None
        versions = self.view.versions()
        if incremental and versions:
            version = data.draw(st.sampled_from(versions))
            base, since = version.number, dict(version.boundary)
        self.building = self.view.build(cut, base=base)
        self.waiting = partials_of(self.events(since, cut.boundary))

    @precondition(lambda self: self.building is not None and self.waiting)
    @rule()
    def load_some(self) -> None:
        assert self.building is not None
        self.building.load(self.waiting[:3])
        self.waiting = self.waiting[3:]

    @precondition(lambda self: self.building is not None)
    @rule(keep=st.integers(1, 3))
    def publish(self, keep: int) -> None:
        assert self.building is not None
        self.building.load(self.waiting)
        self.building.publish(keep=keep)
        assert len(self.view.versions()) <= keep
        made = self.view.versions()[-1]
        assert made.rows == len(partials_of(self.events({}, made.boundary)))
        self.building = None

    @precondition(lambda self: self.building is not None)
    @rule()
    def publish_and_crash_before_sweeping(self) -> None:
        assert self.building is not None
        self.building.load(self.waiting)
        sweep, self.view.sweep = self.view.sweep, lambda: None  # type: ignore[method-assign]
        self.building.publish(keep=1)
        self.view.sweep = sweep  # type: ignore[method-assign]
        self.building = None

    @precondition(lambda self: self.building is not None)
    @rule(politely=st.booleans())
    def give_up_building(self, politely: bool) -> None:
        assert self.building is not None
        if politely:
            self.building.discard()
        self.building = None

    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        versions = self.view.versions()
        if versions:
            wanted = data.draw(st.sampled_from(versions)).number
            assert self.view.rollback(wanted) == wanted
            assert [each.number for each in self.view.versions() if each.current] == [wanted]

    @rule()
    def sweep(self) -> None:
        self.view.sweep()

    @rule()
    def crash(self) -> None:
        self.building = None
        self.store.close()
        self.reopen()

    @invariant()
    def every_event_counts_once(self) -> None:
        reached = self.view.provenance().reached
        answer = self.view.answer(Query(limit=10_000))
        assert rows_of(answer) == recount(self.events({}, self.taken))
        assert len(self.events(reached, self.taken)) == 0
        assert answer.provenance.reached == reached

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_STEP", 4)
    monkeypatch.setattr(parts, "_PLACES", 3)
    monkeypatch.setattr(versions, "_SMALL", 2)  # or no version would be of several parts
    monkeypatch.setattr(versions, "_GROWTH", 1.5)


@pytest.fixture
def tries(url: str) -> int:
    """Fewer where each costs more."""
    return 150 if url.startswith("sqlite") else 25


def test_every_event_counts_once_at_every_instant(url: str, tries: int) -> None:
    machine = type("Machine", (Lambda,), {"url": url})
    run_state_machine_as_test(machine, settings=examples(tries, stateful_step_count=25))


FEW = st.tuples(st.sampled_from("ab"), st.sampled_from([None, 0]), st.integers(0, 2), st.sampled_from("uv"), st.just(1))


def test_versions_that_are_built_on_others_say_what_one_of_all_events_would(url: str, tries: int) -> None:
    store = Store(url)

    @examples(tries // 3)
    @given(steps=st.lists(st.tuples(st.booleans(), st.lists(FEW, max_size=8)), min_size=2, max_size=6))
    def check(steps: list[tuple[bool, list[tuple[Any, ...]]]]) -> None:
        view = store.view(dataclasses.replace(LAYOUT, name=f"built{next(Lambda.names)}"))
        events: list[Event] = []
        base, covered = None, 0
        for number, (whole, drawn) in enumerate(steps):
            since = len(events)
            events += [event_of(since + at, each) for at, each in enumerate(drawn)]
            view.add(MicroBatch("s", number, {0: since}, {0: len(events)}), partials_of(events[since:]))
            first = 0 if whole or base is None else covered
            with view.build(view.cut(), base=None if whole else base) as version:
                version.load(partials_of(events[first:]))
                version.publish()
            base, covered = version.number, len(events)
            assert view.versions()[-1].rows == len(partials_of(events))
            assert rows_of(view.answer(Query(limit=10_000, layer="batch"))) == recount(events)

    check()
    store.close()


QUERIES = st.builds(
    Query,
    key=st.fixed_dictionaries(
        {},
        optional={
            "site": SITES | st.builds(Prefix, st.sampled_from(["", "a", "a/", "\0", "\U0010ffff"])) | ranges(SITES),
            "code": CODES | ranges(CODES),
        },
    ),
    since=st.none() | st.integers(0, 3).map(lambda window: window * SIZE // 1_000_000),
    until=st.none() | st.integers(0, 4).map(lambda window: window * SIZE // 1_000_000),
    by=st.none() | st.sampled_from([(), ("site",), ("code",), ("site", "code")]),
    across_windows=st.booleans(),
)

TOPS = st.tuples(st.sampled_from(["n", "spent", "people", "mean", "weight"]), st.integers(1, 5))


def test_queries_find_what_a_recount_finds(url: str, tries: int) -> None:
    store = Store(url)

    @examples(tries)
    @given(drawn=some_events(most=30), asked=st.lists(QUERIES, min_size=1, max_size=5), data=st.data())
    def check(drawn: list[tuple[Any, ...]], asked: list[Query], data: st.DataObject) -> None:
        view = store.view(dataclasses.replace(LAYOUT, name=f"asked{next(Lambda.names)}"))
        events = [event_of(number, each) for number, each in enumerate(drawn)]
        spread(view, events, data)
        for query in asked:
            expected = recount(events, query)
            assert pages(view, query, data.draw(st.integers(1, 7))) == expected
            best = dataclasses.replace(query, top=data.draw(TOPS))
            assert rows_of(view.answer(best)) == recount(events, best)

    check()
    store.close()


def spread(view: StoredView, events: list[Event], data: st.DataObject) -> None:
    """Some of the events into a version, the others into two generations."""
    first, second = sorted((data.draw(st.integers(0, len(events))), data.draw(st.integers(0, len(events)))))
    view.add(MicroBatch("s", 0, {}, {0: first}), partials_of(events[:first]))
    with view.build(view.cut()) as version:
        version.load(partials_of(events[:first]))
        version.publish()
    view.add(MicroBatch("s", 1, {0: first}, {0: second}), partials_of(events[first:second]))
    view.cut()
    view.add(MicroBatch("s", 2, {0: second}, {0: len(events)}), partials_of(events[second:]))


def pages(view: StoredView, query: Query, limit: int) -> list[tuple[Any, ...]]:
    """All rows of the answer, page by page."""
    found: list[tuple[Any, ...]] = []
    after = None
    while True:
        answer = view.answer(dataclasses.replace(query, limit=limit, after=after))
        assert len(answer.rows) == limit if answer.next else len(answer.rows) <= limit
        found += rows_of(answer)
        after = answer.next
        if after is None:
            return found
