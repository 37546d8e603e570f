"""Exact aggregations with an approximate speed layer: exact once the batch has caught up, within the bound before."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.model.algebra import EitherFn
from headrace.model.errors import PipelineError
from headrace.model.safebytes import encode
from headrace.views.declare.layout import Layout, Partial
from headrace.views.offsets import MicroBatch
from headrace.views.query.queries import Query
from headrace.views.stores import Store, versions
from headrace.views.stores.store import StoredView
from tests.scale import examples

SOON = hr.count_distinct("user", speed=hr.approx_distinct("user"))
LAYOUT = Layout.of("people", keys={"page": "string"}, aggregations={"n": hr.count(), "users": SOON})
Event = tuple[str, int | str]
BOUND = 5 * 1.04 / 2**6  # of the sketch, five standard errors


def partials(events: list[Event], *, speed: bool = False) -> list[Partial]:
    fn = LAYOUT.fns[1]
    assert isinstance(fn, EitherFn)
    counting = fn.speed if speed else fn
    pages: dict[str, list[Any]] = {}
    for page, user in events:
        pages.setdefault(page, []).append(user)
    return [
        Partial((page,), 0, 1, (len(users), counting.dump(counting.add_all(counting.zero(), users))))
        for page, users in pages.items()
    ]


def counted(events: list[Event]) -> dict[str, int]:
    pages = {page for page, _ in events}
    return {page: len({user for each, user in events if each == page}) for page in pages}


def found(view: StoredView, **query: Any) -> dict[str, tuple[int, bool]]:
    """Of each page its users, and whether that is exact."""
    rows = view.answer(Query(limit=1000, **query)).rows
    assert all(set(row.approximate) <= {"users"} for row in rows)
    return {row.key.get("page", "*"): (row.values["users"], not row.approximate) for row in rows}


def version(view: StoredView, events: list[Event], base: int | None = None) -> int:
    with view.build(view.cut(), base=base) as build:
        build.load(partials(events))
        build.publish()
    return build.number


USERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9) | st.text(max_size=4)
EVENTS = st.lists(st.tuples(st.sampled_from("abc"), USERS), max_size=40)


@pytest.fixture
def view(tmp_path: Path) -> StoredView:
    return Store(f"sqlite:///{tmp_path}/views.db").view(LAYOUT)


def test_answers_are_exact_where_the_batch_has_counted_and_within_the_bound_where_not(tmp_path: Path) -> None:
    store, numbers = Store(f"sqlite:///{tmp_path}/views.db"), iter(range(10_000))

    @examples(40)
    @given(EVENTS, EVENTS, EVENTS)
    def check(before: list[Event], since: list[Event], later: list[Event]) -> None:
        view = store.view(dataclasses.replace(LAYOUT, name=f"people{next(numbers)}"))
        offsets = [0, len(before), len(before + since), len(before + since + later)]
        view.add(MicroBatch("s", 0, {}, {0: offsets[1]}), partials(before, speed=True))
        base = version(view, before)
        assert found(view) == {page: (n, True) for page, n in counted(before).items()}

        view.add(MicroBatch("s", 1, {0: offsets[1]}, {0: offsets[2]}), partials(since, speed=True))
        answers, recent = found(view), {page for page, _ in since}
        assert answers.keys() == counted(before + since).keys()
        for page, n in counted(before + since).items():
            users, exact = answers[page]
            assert exact == (page not in recent)
            assert users == n if exact else abs(users - n) <= max(1, BOUND * n)
        ((total, exact),) = found(view, by=()).values() if before + since else ((0, not recent),)
        assert exact == (not recent)
        assert abs(total - len({user for _, user in before + since})) <= max(1, BOUND * total)

        base = version(view, since, base=base)  # an increment, whose parts merge exactly
        assert found(view) == {page: (n, True) for page, n in counted(before + since).items()}
        view.add(MicroBatch("s", 2, {0: offsets[2]}, {0: offsets[3]}), partials(later, speed=True))
        version(view, before + since + later)
        assert found(view) == {page: (n, True) for page, n in counted(before + since + later).items()}

    check()
    store.close()


def test_many_users_are_estimated_until_the_batch_has_them(view: StoredView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_SMALL", 0)
    draw = random.Random(3)
    before: list[Event] = [("a", draw.randrange(60_000)) for _ in range(50_000)]
    since: list[Event] = [("a", draw.randrange(30_000, 90_000)) for _ in range(30_000)]
    view.add(MicroBatch("s", 0, {}, {0: len(before)}), partials(before, speed=True))
    base = version(view, before)
    view.add(MicroBatch("s", 1, {0: len(before)}, {0: len(before + since)}), partials(since, speed=True))
    exact = counted(before + since)["a"]
    estimate, is_exact = found(view)["a"]
    assert not is_exact
    assert abs(estimate - exact) <= BOUND * exact
    version(view, since, base=base)
    assert found(view) == {"a": (exact, True)}


def test_sets_are_kept_in_little_space() -> None:
    fn = LAYOUT.fns[1]
    draw = random.Random(3)
    numbers = encode(fn.dump(fn.add_all(fn.zero(), [draw.randrange(1_000_000) for _ in range(100_000)])))
    names = encode(fn.dump(fn.add_all(fn.zero(), [f"user-{draw.randrange(1_000_000):07}" for _ in range(100_000)])))
    speed = encode(fn.speed.dump(fn.speed.add_all(fn.speed.zero(), range(100_000))))  # type: ignore[attr-defined]
    assert len(numbers) < 2.5 * 95_000
    assert len(names) < 4.5 * 95_000
    assert len(speed) < 4_200


def test_what_cannot_be_the_speed_layer_of_an_exact_count() -> None:
    with pytest.raises(PipelineError, match=r"speed must be hr\.approx_distinct\('user'\), got CountFn\(\)"):
        hr.count_distinct("user", speed=hr.count())
    with pytest.raises(PipelineError, match="both must be of the same column, got 'user' and speed=ApproxDistinctFn"):
        hr.count_distinct("user", speed=hr.approx_distinct("page"))
