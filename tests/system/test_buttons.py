"""The buttons of the page, pressed in a real browser at a system on real Spark: they do what they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from headrace.server import Server
from headrace.server.page.humantext import offsets
from tests.scale import only_full
from tests.server.browsers import browsing, looking
from tests.server.page.test_page import number, points_of, rows
from tests.system.test_system import World, world

__all__ = ["world"]  # a fixture

VERSIONS = '[data-name="versions hits"]'


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserContext]:
    with browsing() as context:
        yield context


@only_full("test_page.py rolls back and computes by the same buttons")
@pytest.mark.slow("a system on Spark, and a browser")
def test_compute_and_roll_back(world: World, browser: BrowserContext) -> None:
    world.happen(60)
    with (
        Server(world.system.service, port=0, page=True) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
        looking(browser, f"{server.url}/?tab=batch") as page,
    ):
        expect(page.get_by_text("No batch version yet")).to_be_visible()
        page.get_by_role("button", name="Compute", exact=True).click()
        _shows(page, client, version=1, batch=60, speed=0)
        world.happen(40)
        _shows(page, client, version=1, batch=60, speed=40)
        page.get_by_role("button", name="Compute incremental").click()
        _shows(page, client, version=2, batch=100, speed=0)
        page.locator(VERSIONS).get_by_role("button", name="Roll back").click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        _shows(page, client, version=1, batch=60, speed=40)
        jobs = [(job["incremental"], job["state"], job["version"]) for job in client.get("/status").json()["jobs"]]
        assert jobs == [(False, "done", 1), (True, "done", 2)]
        assert [(row[2], row[3], row[7]) for row in rows(page, "jobs")] == [
            ("incremental", "done", "2"),
            ("all events", "done", "1"),
        ]
    assert world.answer() == world.seen


def _shows(page: Page, client: httpx.Client, *, version: int, batch: int, speed: int) -> None:
    """The page comes to show this version and so many events in each layer; and then all of it is as the API says."""
    expect(page.locator(f"{VERSIONS} tr").filter(has_text="current").locator("td").first).to_have_text(str(version))
    told = client.get("/views/hits/versions").json()["versions"]
    assert [each["version"] for each in told if each["current"]] == [version]
    assert [(number(row[0]), row[1], number(row[2]), row[4]) for row in rows(page, "versions hits")] == [
        (each["version"], "current" if each["current"] else "kept", each["rows"], offsets(each["boundary"]))
        for each in reversed(told)
    ]
    page.get_by_role("tab", name="Views").click()
    plot = page.locator('[data-name="plot"]')
    expect(plot).to_be_visible()
    sums = f"{points_of(plot)}.map(points => points.reduce((sum, [_, value]) => sum + value, 0)).join()"
    page.wait_for_function(f"{sums} == '{batch},{speed}'")
    assert (_sum(client, layer="batch"), _sum(client, layer="speed")) == (batch, speed)
    shown = {row[0]: (number(row[3]), number(row[4])) for row in rows(page, "rows")}
    answer = client.get("/views/hits").json()
    assert shown == {row["key"]["url"]: tuple(row["values"].values()) for row in answer["rows"]}
    assert sum(n for n, _ in shown.values()) == batch + speed
    page.get_by_role("tab", name="Batch").click()


def _sum(client: httpx.Client, **asked: Any) -> int:
    return sum(row["values"]["n"] for row in client.get("/views/hits", params=asked).json()["rows"])
