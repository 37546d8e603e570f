"""Views over HTTP: what the store answers is what comes out, with where it comes from."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from headrace.model.jsontext import dumps
from headrace.server import Service
from headrace.views.jsonencoding import encode_answer, encode_time
from headrace.views.query.queries import Between, Prefix, Query
from headrace.views.stores.store import StoredView
from tests.scale import examples
from tests.server.conftest import HOUR, feed, on_both, partial_row, publish

T0, T1, T2 = "1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z", "1970-01-01T02:00:00Z"


@pytest.fixture(autouse=True)
def rows(view: StoredView) -> None:
    feed(view, partial_row("foo.com/blog", 0, "ann", "bob"), partial_row("foo.com/about", 0, "ann"), watermark=HOUR)
    publish(view, partial_row("foo.com/blog", 0, "ann", "bob"), partial_row("foo.com/about", 0, "ann"))
    feed(
        view,
        partial_row("foo.com/blog", 0, "cleo"),
        partial_row("foo.com/blog", 1, "ann"),
        partial_row("oof.com", 1, "ann"),
        watermark=HOUR,
    )


def get(client: httpx.Client, path: str, status: int = 200, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    return answer.json()


def counts(answer: Any) -> list[tuple[str, str, int]]:
    return [(row["key"]["url"], row["window"]["start"], row["values"]["hits"]) for row in answer["rows"]]


@on_both
def test_a_row_says_where_it_comes_from(client: httpx.Client, clock: list[int]) -> None:
    clock[0] += 1_500_000
    answer = get(client, "/views/visitors", url="foo.com/blog", to=T1)
    assert answer == {
        "view": "visitors",
        "rows": [
            {
                "key": {"url": "foo.com/blog"},
                "window": {"start": T0, "end": T1},
                "values": {"hits": 3, "people": 3},
                "approximate": ["people"],
            }
        ],
        "next": None,
        "version": 1,
        "boundary": {"0": 2},
        "reached": {"0": 5},
        "watermark": T1,
        "updated": "1970-01-01T00:16:40Z",
        "freshness": 1.5,
    }


@on_both
def test_views_are_listed(client: httpx.Client) -> None:
    listed = {view["name"]: view for view in get(client, "/views")["views"]}
    assert listed["visitors"]["keys"] == {"url": "string"}
    assert listed["visitors"]["aggregates"] == ["hits", "people"]
    assert listed["visitors"]["version"] == 1
    assert (listed["users"]["keys"], listed["users"]["version"]) == ({"user": "string", "url": "string"}, None)


@on_both
def test_by_range_prefix_and_top(client: httpx.Client) -> None:
    assert counts(get(client, "/views/visitors", **{"from": T1})) == [("foo.com/blog", T1, 1), ("oof.com", T1, 1)]
    assert counts(get(client, "/views/visitors", **{"url.prefix": "foo.com/", "to": T1})) == [
        ("foo.com/about", T0, 1),
        ("foo.com/blog", T0, 3),
    ]
    assert counts(get(client, "/views/visitors", **{"url.from": "g", "url.to": "p"})) == [("oof.com", T1, 1)]
    assert counts(get(client, "/views/visitors", top="hits:1")) == [("foo.com/blog", T0, 3)]
    assert counts(get(client, "/views/visitors", url="foo.com/blog", layer="batch")) == [("foo.com/blog", T0, 2)]
    (all_of_it,) = get(client, "/views/visitors", by="", windows="merged")["rows"]
    assert (all_of_it["key"], all_of_it["window"]) == ({}, {"start": T0, "end": T2})
    assert (all_of_it["values"], all_of_it["approximate"]) == ({"hits": 6, "people": 3}, ["people"])


@on_both
def test_pages_follow_each_other(client: httpx.Client) -> None:
    rows, after = [], {}
    for _ in range(5):
        page = get(client, "/views/visitors", limit=1, **after)
        rows += counts(page)
        after = {"after": page["next"]}
        if page["next"] is None:
            break
    assert rows == counts(get(client, "/views/visitors"))
    assert len(rows) == 4


@on_both
def test_windows_without_end_and_keys_that_are_null(client: httpx.Client, service: Service, view: StoredView) -> None:
    from headrace.model.times import MAX_TIME, MIN_TIME
    from headrace.views.declare.layout import Partial

    feed(service.views["users"], Partial((None, "a"), MIN_TIME, MAX_TIME, (4,)))
    answer = get(client, "/views/users", **{"user.null": "true"})
    assert answer["rows"] == [
        {"key": {"user": None, "url": "a"}, "window": {"start": None, "end": None}, "values": {"hits": 4}}
    ]


@on_both
def test_versions_and_going_back(client: httpx.Client, view: StoredView) -> None:
    publish(view, partial_row("foo.com/blog", 0, "twice", "too", "many", "of", "all"))
    versions = get(client, "/views/visitors/versions")["versions"]
    assert [(version["version"], version["rows"], version["boundary"], version["current"]) for version in versions] == [
        (1, 2, {"0": 2}, False),
        (2, 1, {"0": 5}, True),
    ]
    assert client.post("/views/visitors/rollback", json={}).json() == {"view": "visitors", "version": 1}
    assert get(client, "/views/visitors", url="foo.com/blog", to=T1)["rows"][0]["values"] == {"hits": 3, "people": 3}
    assert client.post("/views/visitors/rollback", json={"version": 2}).json()["version"] == 2
    for wrong in ({"version": 7}, {"version": "1"}, {"version": True}, {"other": 1}, [1]):
        answer = client.post("/views/visitors/rollback", json=wrong)
        assert answer.status_code == 400 and answer.json()["reason"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("url=a&url=b", "the parameter 'url' is given twice; give it once"),
        ("url=a&url.prefix=b", "the key 'url' is asked for in two forms; give one"),
        ("url.prefix=a&url.from=b", "the key 'url' is asked for in two forms; give one"),
        ("limit=0", "a page has from 1 to 10000 rows, got limit=0"),
        ("limit=1e3", "limit is a number of rows, got '1e3'"),
        ("limit=%D9%A3", "limit is a number of rows, got '٣'"),
        ("from=yesterday", "from is a time such as 2026-01-31T12:00:00Z, got 'yesterday'"),
        ("after=Zm9v", "'Zm9v' is not the end of a page of 'visitors'; use the `next` of the answer before"),
        ("layer=all", "a layer is 'merged', 'batch' or 'speed', got 'all'"),
        ("windows=all", "windows is 'merged' or not given, got 'all'"),
        ("url.null=yes", "url.null is 'true' or not given, got 'yes'"),
        ("top=likes:3", "view 'visitors' has no aggregation 'likes'; there are hits, people"),
        ("by=user", "view 'visitors' has no key 'user'; there are url"),
        ("url=%ff", "a query string has at most 100 parameters, in UTF-8"),
        ("&".join(f"a{n}=" for n in range(101)), "a query string has at most 100 parameters, in UTF-8"),
    ],
)
def test_questions_that_make_no_sense(client: httpx.Client, asked: str, reason: str) -> None:
    assert client.get(f"/views/visitors?{asked}").json() == {"reason": reason}


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
keys = st.one_of(text, st.builds(Prefix, text), st.builds(Between, text, text))


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stored=st.lists(st.tuples(text, st.integers(0, 3)), max_size=6, unique=True),
    key=st.one_of(st.none(), keys),
    hours=st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.integers(0, 3))),
    top=st.one_of(st.none(), st.integers(1, 3)),
    merged=st.booleans(),
    limit=st.integers(1, 10),
)
def test_any_answer_is_that_of_the_store(
    client: httpx.Client,
    view: StoredView,
    stored: list[tuple[str, int]],
    key: Any,
    hours: tuple[int | None, int | None],
    top: int | None,
    merged: bool,
    limit: int,
) -> None:
    feed(view, *(partial_row(url, hour, "x") for url, hour in stored))
    since, until = (None if hour is None else hour * 3600 for hour in hours)
    query = Query(
        key={} if key is None else {"url": key},
        since=since,
        until=until,
        top=None if top is None else ("hits", top),
        across_windows=merged,
        limit=limit,
    )
    asked: dict[str, Any] = {"limit": limit}
    if isinstance(key, Prefix):
        asked["url.prefix"] = key.text
    elif isinstance(key, Between):
        asked |= {"url.from": key.low, "url.to": key.high}
    elif key is not None:
        asked["url"] = key
    asked |= {
        name: encode_time(time) for name, time in (("from", query.since), ("to", query.until)) if time is not None
    }
    asked |= {"top": f"hits:{top}"} if top else {}
    asked |= {"windows": "merged"} if merged else {}
    answer = client.get(f"/views/visitors?{urlencode(asked)}")
    assert answer.content == dumps(encode_answer("visitors", view.answer(query)))
