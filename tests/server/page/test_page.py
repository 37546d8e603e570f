"""The page in a real browser: it shows what the API says, its buttons do what they say, and nothing in it is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from headrace.log import Log
from headrace.log.groups import Group
from headrace.server import Limits, Server, Tokens
from headrace.server.page.humantext import seconds
from headrace.server.page.theme import BATCH, SPEED
from headrace.views.declare.layout import Partial
from tests.scale import only_full
from tests.server import scripted
from tests.server.browsers import looking
from tests.server.scripted import Shop, shop

NOON = scripted.START + 84 * scripted.HOUR
LIMITS = Limits(header_seconds=5)
TABS = ("overview", "views", "topics", "batch", "letters")
READ, ADMIN = "r" * 20, "a" * 20
SCRIPT = "<img src=x onerror=\"window.pwned='yes'\">{{ 7 * 7 }}"

Opened = Callable[..., AbstractContextManager[tuple[Page, httpx.Client]]]


@pytest.fixture
def system(tmp_path: Path) -> Shop:
    return shop(tmp_path, clock=lambda: NOON)


@pytest.fixture
def opened(browser: BrowserContext, system: Shop, port: int) -> Opened:
    """Opens a page of a server of its own; with it comes a client of the API."""

    @contextmanager
    def open_(path: str = "/", **options: Any) -> Iterator[tuple[Page, httpx.Client]]:
        service = options.pop("service", system.service)
        with (
            Server(service, port=port, limits=LIMITS, page=True, **options) as server,
            httpx.Client(base_url=server.url) as client,
            looking(browser, f"{server.url}{path}") as page,
        ):
            yield page, client

    return open_


def rows(page: Page, name: str) -> list[list[str]]:
    """The texts of a table, once it has rows."""
    table = page.locator(f'[data-name="{name}"]')
    expect(table.locator("tbody tr").first).to_be_visible()
    return [[cell.strip() for cell in row.locator("td").all_inner_texts()] for row in table.locator("tbody tr").all()]


def number(text: str) -> int:
    return int(re.sub(r"[^\d]", "", text))


def tile(page: Page, name: str) -> Locator:
    return page.locator(f'[data-name="{name}"] .hr-number')


def test_the_overview_says_what_the_status_says(opened: Opened) -> None:
    with opened() as (page, client):
        status = client.get("/status").json()
        views, topics = status["views"], status["topics"]
        expect(tile(page, "Views")).to_have_text("2 of 2")
        behind = sum(view["lag"] for view in views.values())
        expect(tile(page, "Behind")).to_have_text(str(behind))
        rates = sum(topic["records_per_second"] for topic in topics.values())
        assert number(tile(page, "Records in").inner_text()) == round(rates)
        assert number(tile(page, "Bad records").inner_text()) == 3
        for name, view in views.items():
            shown = rows(page, f"stages {name}")
            assert [row[0] for row in shown] == [stage["label"] for stage in view["stages"]]
            assert [row[3] for row in shown] == [seconds(stage["lag_seconds"]) for stage in view["stages"]]
            for at, field in ((4, "held"), (5, "late"), (6, "refused")):
                assert [number(row[at]) for row in shown] == [stage[field] for stage in view["stages"]]
            card = page.locator(f'section[data-view="{name}"]')
            nodes = card.locator(".hr-across .hr-node title").all_text_contents()
            assert sorted(nodes) == sorted(f"{node['kind']}: {node['id']}" for node in view["graph"]["nodes"])
            edges = card.locator(".hr-across .hr-edge text").all_text_contents()
            assert [number(edge) for edge in edges] == [edge["elements"] for edge in view["graph"]["edges"]]
        charts = page.locator(".hr-charts .hr-chart")
        assert charts.count() == 3
        expect(charts.nth(2)).to_contain_text("visitors · WindowInto")
        for chart, lines in ((0, 4), (1, 2), (2, 4)):
            page.wait_for_function(f"{points_of(charts.nth(chart))}.length == {lines}")


def points_of(chart: Locator) -> str:
    """Code for the points of a chart's series, as the chart has them."""
    name = (chart.get_attribute("id") or "").removeprefix("c")
    return f"(getElement({name}).chart?.getOption().series ?? []).map(series => series.data)"


def test_topics_have_the_offsets_of_the_api(opened: Opened) -> None:
    with opened("/?tab=topics") as (page, client):
        for name, topic in client.get("/status").json()["topics"].items():
            shown = [[number(cell) for cell in row] for row in rows(page, f"partitions {name}")]
            assert shown == [
                [
                    at,
                    partition["start"],
                    partition["end"],
                    partition["end"] - partition["start"],
                    topic["archived"][str(at)],
                ]
                for at, partition in enumerate(topic["partitions"])
            ]
            groups = rows(page, f"groups {name}")
            assert [(row[0], number(row[2])) for row in groups] == [
                (name, group["lag"]) for name, group in topic["groups"].items()
            ]


def test_the_explorer_shows_rows_and_parts_of_the_api(opened: Opened) -> None:
    with opened("/?tab=views") as (page, client):
        answer = client.get("/views/visitors").json()
        expect(page.locator('[data-name="provenance"]')).to_contain_text("version 2 up to 0: 4,100")
        shown = rows(page, "rows")
        assert len(shown) == 20  # a page of the hundred
        for row, expected in zip(shown, answer["rows"], strict=False):
            assert (row[0], number(row[3]), number(row[4])) == (expected["key"]["url"], *expected["values"].values())
            assert row[1].replace(" ", "T") + "Z" == expected["window"]["start"]

        chart = page.locator('[data-name="plot"]')
        page.wait_for_function(f"{points_of(chart)}.length == 2")
        drawn = [[value for _, value in points] for points in page.evaluate(points_of(chart))]
        windows = [row["window"]["start"] for row in parts(client, "merged")]
        for layer, values in (("batch", drawn[0]), ("speed", drawn[1])):
            hits = {row["window"]["start"]: row["values"]["hits"] for row in parts(client, layer)}
            assert values == [hits.get(window, 0) for window in windows]
        assert [a + b for a, b in zip(*drawn, strict=True)] == [r["values"]["hits"] for r in parts(client, "merged")]
        for colour in (BATCH, SPEED):
            assert chart.locator(f'path[fill="{colour}"]').count() > 10

        choose(page, "Plot", "people")  # who came in both parts is one of them, so these are not stacked
        expect(chart).to_contain_text("batch and speed")
        drawn = [[value for _, value in points] for points in page.evaluate(points_of(chart))]
        assert drawn[1] == [row["values"]["people"] for row in parts(client, "merged")]


def parts(client: httpx.Client, layer: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.get(f"/views/visitors?by=&limit=10000&layer={layer}").json()["rows"]
    return rows


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.locator(".q-menu .q-item").filter(has_text=re.compile(f"^{option}$")).click()


def test_questions_that_are_typed(opened: Opened) -> None:
    with opened("/?tab=views&view=visitors") as (page, client):
        assert len(rows(page, "rows")) == 20
        page.get_by_label("anything").fill("/products/")
        page.get_by_label("From", exact=True).fill("2026-03-02 22:00")
        choose(page, "Rows", "largest first")
        expect(page.get_by_role("link", name="as JSON")).to_have_attribute("href", re.compile("top=hits"))
        link = page.get_by_role("link", name="as JSON").get_attribute("href")
        asked = {"url.prefix": "/products/", "from": "2026-03-02 22:00", "top": "hits:100"}
        answer = client.get("/views/visitors", params=asked).json()["rows"]
        assert client.get(link or "").json()["rows"] == answer and len(answer) == 28
        assert [(row[0], number(row[3])) for row in rows(page, "rows")] == [
            (row["key"]["url"], row["values"]["hits"]) for row in answer[:20]
        ]
        page.get_by_label("From", exact=True).fill("soon")
        expect(page.get_by_text("from is a time such as 2026-01-31T12:00:00Z, got 'soon'")).to_be_visible()
        page.get_by_label("From", exact=True).fill("2027-01-01")
        expect(page.get_by_text("No row has these keys and times; ask for less.")).to_be_visible()
        choose(page, "View", "customers")  # has no windows, so its keys are drawn
        expect(page.locator('[data-name="plot"]')).to_contain_text("cleo")
        assert [row[0] for row in rows(page, "rows")][:2] == ["ann", "bob"]


def test_rolling_back_and_computing(opened: Opened, system: Shop) -> None:
    with opened("/?tab=batch") as (page, client):

        def versions() -> dict[int, bool]:
            versions = client.get("/views/visitors/versions").json()["versions"]
            return {version["version"]: version["current"] for version in versions}

        assert [(number(row[0]), row[1], number(row[2])) for row in rows(page, "versions visitors")] == [
            (2, "current", 384),
            (1, "kept", 192),
        ]
        back(page).click()
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert versions() == {1: False, 2: True}
        back(page).click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        expect(page.get_by_text("visitors answers from version 1")).to_be_visible()
        assert versions() == {1: True, 2: False}
        expect(current(page)).to_have_text("1")

        card = page.locator('section[data-view="visitors"]')
        card.get_by_role("button", name="Compute incremental").click()
        expect(card.get_by_role("button", name="Compute", exact=True)).to_be_disabled()
        assert client.get("/status").json()["jobs"][0]["incremental"] is True
        assert rows(page, "jobs")[0][:5] == ["1", "visitors", "incremental", "running", "computing"]
        system.finish()
        expect(page.locator('[data-name="jobs"]')).to_contain_text("done")
        expect(card.get_by_role("button", name="Compute", exact=True)).to_be_enabled()
        assert versions() == {1: False, 2: False, 3: True}
        expect(current(page)).to_have_text("3")
        card.get_by_role("button", name="Compute", exact=True).click()
        system.jobs[-1]["state"] = "waiting"  # for its turn: another of the view would be refused
        expect(page.locator('[data-name="jobs"]')).to_contain_text("waiting")
        expect(card.get_by_role("button", name="Compute", exact=True)).to_be_disabled()
        system.finish()
        expect(current(page)).to_have_text("4")
        back(page).first.click()  # a row that was version 2 before
        expect(page.get_by_role("dialog")).to_contain_text("Roll back to version 3?")
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        expect(current(page)).to_have_text("3")
        assert versions() == {2: False, 3: True, 4: False}


def back(page: Page) -> Locator:
    """The button of the version that does not answer."""
    return page.locator('[data-name="versions visitors"]').get_by_role("button", name="Roll back")


def current(page: Page) -> Locator:
    """The number of the version that is marked as the one that answers."""
    return page.locator('[data-name="versions visitors"] tr').filter(has_text="current").locator("td").first


def test_dead_letters(opened: Opened) -> None:
    with opened("/?tab=letters") as (page, client):
        letters = client.get("/deadletters").json()["dead_letters"]
        shown = rows(page, "letters")
        assert [row[1:] for row in shown] == [
            [letter[name] for name in ("view", "position", "reason", "message", "record")] for letter in letters
        ]
        assert rows(page, "bad") == [
            ["visitors", "topic visits", *reason] for reason in (("malformed", "2"), ("no time", "1"))
        ]


@only_full("it looks at the same panels")
def test_dark_light_and_narrow(opened: Opened) -> None:
    with opened() as (page, _):
        body = page.locator("body")
        expect(tile(page, "Views")).to_have_text("2 of 2")
        dark, light, toggle = re.compile("body--dark"), re.compile("body--light"), page.get_by_label("Dark or light")
        for scheme, theme in (("dark", dark), ("light", light)):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            expect(body).to_have_class(theme)
        ground = [body.evaluate("body => getComputedStyle(body).backgroundColor")]
        toggle.click()
        expect(body).to_have_class(dark)
        page.reload()
        expect(body).to_have_class(dark)  # what was chosen stays
        assert body.evaluate("body => getComputedStyle(body).backgroundColor") not in ground
        toggle.click()
        expect(body).to_have_class(light)
        assert page.context.cookies() == []  # what the system has needs no cookie
        page.set_viewport_size({"width": 400, "height": 860})
        for tab in TABS:
            page.get_by_role("tab").nth(TABS.index(tab)).click()
            expect(page.locator(".hr-panel").first).to_be_visible()
            expect(page).to_have_url(re.compile(f"(tab={tab}|/)$"))
            page.wait_for_function("document.documentElement.scrollWidth <= 400")
        page.get_by_role("tab").first.click()
        expect(page.locator(".hr-graph.hr-down").first).to_be_visible()
        expect(page.locator(".hr-graph.hr-across").first).to_be_hidden()


def test_script_in_names_and_keys_is_text(
    opened: Opened, system: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = scripted.spendings(1)[0][1:3]
    scripted.feed(system.service.views["customers"], [Partial((SCRIPT,), *ends, (900, 900_000))], {0: 78})
    Group(Log(tmp_path / "log"), "visits", "<b>group").commit({0: 1})
    system.letters[0] |= dict.fromkeys(("record", "reason", "message", "position"), SCRIPT)
    plain = Shop.status

    def status(self: Shop) -> dict[str, Any]:
        status = plain(self)
        graph = status["views"]["visitors"]["graph"]
        graph["nodes"][1]["id"] = graph["edges"][1]["to"] = graph["edges"][2]["from"] = SCRIPT
        status["views"]["visitors"]["stages"][0]["label"] = SCRIPT
        status["views"]["visitors"] |= {"state": "failed", "error": SCRIPT, "bad": {SCRIPT: {SCRIPT: 1}}}
        return status

    monkeypatch.setattr(Shop, "status", status)
    with opened() as (page, _):
        card = page.locator('section[data-view="visitors"]')
        expect(card.locator(".hr-error")).to_have_text(SCRIPT)
        expect(card.locator(".hr-across .hr-node title").nth(1)).to_have_text(f"transform: {SCRIPT}")
        assert rows(page, "stages visitors")[0][0] == SCRIPT
        expect(page.locator(".hr-charts .hr-chart").nth(2)).to_contain_text(SCRIPT[:9])
        page.get_by_role("tab", name="Topics").click()
        assert "<b>group" in [row[0] for row in rows(page, "groups visits")]
        page.get_by_role("tab", name="Dead letters").click()
        assert rows(page, "letters")[0][5] == SCRIPT
        page.get_by_role("tab", name="Views").click()
        choose(page, "View", "customers")
        choose(page, "Rows", "largest first")
        expect(page.locator('[data-name="rows"] tbody tr').first).to_contain_text(SCRIPT)
        plot = page.locator('[data-name="plot"]')
        expect(plot).to_contain_text("cleo")
        box = plot.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 100, box["y"] + box["height"] / 2)  # over the largest, which is the first
        expect(page.locator(".hr-tooltip")).to_contain_text(SCRIPT)
        assert page.evaluate("window.pwned") is None
        assert page.locator("img[src=x]").count() == 0


@only_full("a system that does not answer")
def test_a_store_without_a_running_system(opened: Opened, system: Shop) -> None:
    with opened(service=replace(system.service, operations=None)) as (page, client):
        expect(page.get_by_text("store only")).to_be_visible()
        expect(tile(page, "Views")).to_have_text("2")
        assert client.get("/status").status_code == 404
        assert page.locator(".hr-charts").count() == 0
        page.get_by_role("tab", name="Topics").click()
        assert sum(number(row[3]) for row in rows(page, "partitions visits")) == 64
        page.get_by_role("tab", name="Batch").click()
        assert page.get_by_role("button", name="Compute").count() == 0
        back(page).click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        expect(page.get_by_text("visitors answers from version 1")).to_be_visible()
        assert client.get("/views/visitors?limit=1").json()["version"] == 1
        page.get_by_role("tab", name="Dead letters").click()
        expect(page.get_by_text("This server answers from a store alone.")).to_be_visible()


def test_a_system_that_does_not_answer(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as (page, _):
        expect(tile(page, "Views")).to_have_text("2 of 2")
        with monkeypatch.context() as broken:
            broken.setattr(Shop, "status", lambda self: 1 / 0)
            expect(page.locator(".hr-state")).to_have_text("no answer")
            expect(tile(page, "Views")).to_have_text("2 of 2")  # what was seen last
        # A WebSocket lives on when the time for the head of a request is over.
        page.wait_for_function(f"performance.now() > {LIMITS.header_seconds * 1_000 + 500}")
        expect(page.locator(".hr-state")).to_have_text("running")


def test_signing_in(opened: Opened, system: Shop) -> None:
    tokens = Tokens.parse(f"read:{READ} admin:{ADMIN}")
    with opened(tokens=tokens, path="/?tab=batch") as (page, client):
        assert page.url.endswith("/login")

        def sign_in(token: str) -> None:
            page.get_by_label("Token").fill(token)
            with page.expect_navigation():
                page.get_by_role("button", name="Sign in").click()

        sign_in(READ)
        cookie = page.context.cookies()[0]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert READ not in str(cookie)
        page.get_by_role("tab", name="Batch").click()
        assert len(rows(page, "versions visitors")) == 2
        assert page.get_by_role("button", name="Roll back").count() == 0
        assert page.get_by_role("button", name="Compute").count() == 0
        with page.expect_navigation():
            page.get_by_role("button", name="Sign out").click()
        assert page.url.endswith("/login")

        sign_in(ADMIN)
        page.get_by_role("tab", name="Batch").click()
        back(page).click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        expect(page.get_by_text("visitors answers from version 1")).to_be_visible()
        assert system.service.views["visitors"].provenance().version == 1
        page.context.clear_cookies()
        page.goto("about:blank")
        assert client.get("/").status_code == 303
