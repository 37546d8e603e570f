"""Topologies on the page, in a real browser: numbers are those of the API, buttons command, and names are text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import BrowserContext, Page, expect

from headrace.dialects.storm.cluster.control import Control
from headrace.engine.plan.graphsvg import graph_svg
from headrace.server import Server, Service, Tokens
from headrace.server.page.topologygraph import topology_graph
from headrace.server.page.topologyhistory import TopologyHistory
from tests.dialects.storm.clusters import Cluster, WordCount, write_reports
from tests.server.browsers import looking
from tests.server.page.test_page import ADMIN, LIMITS, NOON, READ, SCRIPT, number, points_of, rows
from tests.server.scripted import shop

Opened = Callable[..., AbstractContextManager[tuple[Page, httpx.Client]]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "storm")
    made.topologies = {"word-count": WordCount("word-count"), "odd": WordCount("odd", split=SCRIPT)}
    made._running.update(made.topologies)
    write_reports(tmp_path / "storm", "word-count", "ValueError: no", SCRIPT)
    write_reports(tmp_path / "storm", "odd")
    with made:
        yield made


@pytest.fixture
def opened(browser: BrowserContext, port: int, tmp_path: Path) -> Opened:
    @contextmanager
    def open_(
        path: str = "/", service: Service = Service({}, {}), **options: Any
    ) -> Iterator[tuple[Page, httpx.Client]]:
        service = replace(service, topologies=Control(tmp_path / "storm"))
        with (
            Server(service, port=port, limits=LIMITS, page=True, **options) as server,
            httpx.Client(base_url=server.url, timeout=60) as client,
            looking(browser, f"{server.url}{path}") as page,
        ):
            yield page, client

    return open_


@pytest.mark.slow("a page in a browser")
def test_the_page_says_what_the_api_says_and_its_buttons_command(opened: Opened, cluster: Cluster) -> None:
    with opened("/?topology=word-count") as (page, client):
        assert page.get_by_role("tab").all_inner_texts() == ["hub\nTopologies"]
        topology = client.get("/topologies/word-count").json()
        card = page.locator('section[data-topology="word-count"]')
        tasks = rows(page, "tasks word-count")
        assert [row[0] for row in tasks] == [task["component"] for task in topology["tasks"]]
        for at, field in enumerate(("task", "emitted", "executed", "acked", "failed", "errors"), 1):
            assert [number(row[at]) for row in tasks] == [task[field] for task in topology["tasks"]]
        assert [row[9:] for row in tasks[:3]] == [
            ["733 ms", "12", "28", "7.5 s, and now"],
            ["733 ms", "12", "28", "7.5 s"],
            ["–", "512", "–", "–"],
        ]
        assert tasks[2][7] == "0.031 ms"
        listed = {row[0]: row[1:] for row in rows(page, "topologies")}
        assert (listed["word-count"][0], listed["word-count"][-1]) == ("active", "1 of 2 held back")
        nodes = card.locator(".hr-across .hr-node text").all_text_contents()
        assert nodes == ["sentences × 2", "split × 1", "count × 3"]
        assert card.locator(".hr-across .hr-throttled").count() == 1
        edges = card.locator(".hr-across .hr-edge text").all_text_contents()
        assert list(map(number, edges)) == [1_000, 6_011]
        titles = card.locator(".hr-across .hr-edge title").all_text_contents()
        assert titles[1].splitlines()[1] == "long: fields word, 11 tuples"
        assert [row[3] for row in rows(page, "errors")] == [SCRIPT, "ValueError: no"]
        assert rows(page, "dead letters")[0][3:] == [SCRIPT, "1", "4", "timed out"]

        words = cluster.topologies["word-count"]
        assert isinstance(words, WordCount)
        words.emitted += 500  # a rate needs two looks
        charts = page.locator(".hr-charts .hr-chart")
        page.wait_for_function(f"{points_of(charts.nth(0))}[0]?.some(point => point[1] > 0)")
        page.wait_for_function(f"{points_of(charts.nth(1))}[1]?.some(point => point[1] == 0.733)")
        page.wait_for_function(f"{points_of(charts.nth(2))}[0]?.some(point => point[1] == 56)")

        card.get_by_role("button", name="Deactivate").click()
        expect(card).to_contain_text("inactive")
        expect(card.get_by_role("button", name="Deactivate")).to_be_disabled()
        card.get_by_role("button", name="Activate", exact=True).click()
        expect(card).not_to_contain_text("inactive")
        card.get_by_role("button", name="Rebalance").click()
        page.get_by_label("Tasks of count").fill("5")
        page.get_by_role("dialog").get_by_role("button", name="Rebalance").click()
        expect(card.locator(".hr-across")).to_contain_text("count × 5")
        assert words.commands == ["deactivate", "activate", ("rebalance", {"count": 5}, 30)]
        card.get_by_role("button", name="Kill").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert len(words.commands) == 3
        card.get_by_role("button", name="Kill").click()
        page.get_by_role("dialog").get_by_role("button", name="Kill").click()
        expect(card).to_have_count(0)
        assert words.commands[3:] == [("kill", 30)]

        # What is left is shown instead, and the script in its names is text.
        expect(page.locator('section[data-topology="odd"] .hr-across')).to_contain_text("<img src=x")
        assert SCRIPT in [row[0] for row in rows(page, "tasks odd")]
        expect(page.get_by_text("No component has reported an error.")).to_be_visible()
        assert page.evaluate("window.pwned") is None and page.locator("img[src=x]").count() == 0


def test_beside_views_for_those_who_read(opened: Opened, cluster: Cluster, tmp_path: Path) -> None:
    cluster.topologies["odd"].failure = ValueError(SCRIPT)
    service = shop(tmp_path, clock=lambda: NOON).service
    tokens = Tokens.parse(f"read:{READ} admin:{ADMIN}")
    with opened(service=service, tokens=tokens) as (page, _):
        page.get_by_label("Token").fill(READ)
        with page.expect_navigation():
            page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".hr-state")).to_have_text("running")
        page.get_by_role("tab", name="Topologies").click()
        page.emulate_media(color_scheme="dark")
        expect(page.locator('[data-name="topologies"] tbody tr').first).to_contain_text("failed")
        assert [(row[0], row[1]) for row in rows(page, "topologies")] == [("odd", "failed"), ("word-count", "active")]
        expect(page.locator('section[data-topology="odd"] .hr-error')).to_have_text(SCRIPT)
        page.get_by_role("button", name="word-count").click()
        card = page.locator('section[data-topology="word-count"]')
        expect(card).to_be_visible()
        assert card.get_by_role("button").count() == 0
        page.set_viewport_size({"width": 420, "height": 800})
        expect(card.locator(".hr-down")).to_be_visible()
        page.wait_for_function("document.documentElement.scrollWidth <= 420")
        page.set_viewport_size({"width": 1280, "height": 860})


def test_a_page_that_is_closed_with_a_question_open(
    opened: Opened, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: the dialog was taken away twice, and the log said so."""
    with opened() as (page, _):
        page.get_by_role("button", name="Rebalance").click()
        expect(page.get_by_role("dialog")).to_be_visible()
    assert caplog.text == ""
    assert [topology.commands for topology in cluster.topologies.values()] == [[], []]


def test_a_cluster_that_comes(opened: Opened, tmp_path: Path) -> None:
    with opened() as (page, _):
        expect(page.locator(".hr-state")).to_have_text("no cluster")
        expect(page.get_by_text("No cluster of topologies runs now")).to_be_visible()
        with Cluster(tmp_path / "storm"):
            expect(page.get_by_text("The cluster has no topologies")).to_be_visible()
            expect(page.locator(".hr-state")).to_have_text("running")


def test_several_streams_are_one_edge_and_text_is_escaped() -> None:
    graph = topology_graph(WordCount("odd", split=SCRIPT).status().record())
    assert [(edge["from"], edge["to"], edge["elements"]) for edge in graph["edges"]] == [
        ("sentences", SCRIPT, 1_000),
        (SCRIPT, "count", 6_011),
    ]
    assert [node["kind"] for node in graph["nodes"]] == ["throttled", "transform", "sink"]
    assert "<img" not in graph_svg(graph, across=True)


def test_rates_have_gaps_where_counts_begin_anew() -> None:
    history = TopologyHistory()
    words = WordCount("words")
    for second, emitted in enumerate((1_000, 1_100, 1_100, 40, 60)):
        words.emitted = emitted
        published = {"runs": True, "time": f"1970-01-01T00:00:0{second}Z", "topologies": [words.status().record()]}
        history.add(published)
        history.add(published)  # nothing was published since
    assert history.points("emitted", "words") == [
        [0.0, None],
        [1_000.0, 150.0],  # of two tasks, of which one emits half as much
        [2_000.0, 75.0],
        [3_000.0, None],
        [4_000.0, 30.0],
    ]
    history.add({"runs": False, "time": None, "topologies": []})
    assert history.rates == {}
    assert history.points("emitted", "none") == []


@given(st.lists(st.tuples(st.integers(1, 7), st.integers(0, 100)), max_size=20))
def test_rates_are_of_the_last_ten_seconds(looks: list[tuple[int, int]]) -> None:
    """From the latest look that is ten seconds old or older, or else from the first, to now."""
    history, words, known, at, emitted = TopologyHistory(), WordCount("words"), [], 0, 0
    for passes, more in looks:
        at, emitted = at + passes, emitted + 2 * more
        words.emitted = emitted
        known.append((at, emitted * 3 // 2))
        time = f"1970-01-01T00:{at // 60:02}:{at % 60:02}Z"
        history.add({"runs": True, "time": time, "topologies": [words.status().record()]})
        old = [look for look in known if look[0] <= at - 10] or known
        since, before = old[-1] if old is not known else known[0]
        expected = None if since == at else pytest.approx((known[-1][1] - before) / (at - since))
        assert history.rates["words"][0] == expected
