"""The page of a script's pipelines in a real browser: it says what the API says, and when the script is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, expect

import headrace as hr
from headrace.engine.handle import ExchangeStatus, SourceStatus, Status, StreamStatus
from headrace.engine.shard.reports import WaitingWindow
from headrace.model.badrecords import BadRecords
from headrace.model.elementwise import DeadLetter
from headrace.model.metriccells import DistributionResult, GaugeResult
from headrace.model.times import SECOND
from headrace.server import Server, Service
from headrace.system.runs import Runs
from headrace.views.errors import ViewError
from tests.server.browsers import looking
from tests.server.page.test_page import LIMITS, NOON, SCRIPT, number, rows, tile


@dataclass
class ScriptedHandle:
    """A run whose status a test sets."""

    current: Status
    counts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def wait(self, timeout: float | None = None) -> Status:
        if self.current.state == "failed":
            raise hr.TransformError(f"'parse' failed on the element {SCRIPT}")
        return self.current

    def stop(self, *, drain: bool = False) -> None: ...

    def status(self) -> Status:
        return self.current

    def metrics(self) -> dict[str, dict[str, Any]]:
        return self.counts

    def savepoint(self, path: str) -> None: ...


def stream() -> ScriptedHandle:
    waiting = WaitingWindow("'amy'", "12:00 to 12:01", "waits for the watermark to pass 12:01", 61 * SECOND)
    bad = BadRecords(
        {"malformed": 2}, DeadLetter(SCRIPT, "visits", "malformed", "it is not a JSON object", "visits/0@7")
    )
    status = StreamStatus(
        "running",
        bad={"visits": bad},
        recorded={
            ("parse", "bad"): 3,
            ("parse", SCRIPT): GaugeResult(NOON, 0.5),
            ("parse", "size"): DistributionResult(4, 10, 1, 4),
        },
        batches=1_200,
        batch_seconds=0.41,
        sources={"visits": SourceStatus(60 * SECOND, 20, 1_975.0, {0: 7}, 12)},
        exchanges={"sum": ExchangeStatus(60 * SECOND, 59 * SECOND, 2 * SECOND, held=5, late=1, waiting=waiting)},
    )
    return ScriptedHandle(status, {"visits": {"out": 40}, "parse": {"in": 40, "out": 38}, "sum": {"late": 1}})


def add(runs: Runs, handle: ScriptedHandle) -> None:
    p = hr.Pipeline()
    pairs = p | "visits" >> hr.Create([("amy", 1)]) | "parse" >> hr.Map(lambda pair: pair)
    pairs | "sum" >> hr.CombinePerKey(sum) | "out" >> hr.Collect()
    runs.add(p.graph(), handle)


def test_runs_of_a_script_on_the_page_over_http_and_in_metrics(browser: BrowserContext, port: int) -> None:
    runs, running = Runs(clock=lambda: NOON), stream()
    service = Service({}, {}, runs, pipelines=True)
    with (
        Server(service, port=port, limits=LIMITS, page=True) as server,
        httpx.Client(base_url=server.url) as client,
        looking(browser, server.url) as page,
    ):
        expect(page.get_by_text("No pipeline has begun yet.")).to_be_visible()
        expect(page.locator(".hr-state")).to_have_text("no pipeline runs")
        assert page.get_by_role("tab").all_inner_texts() == ["account_tree\nPipelines", "report\nDead letters"]

        add(runs, running)
        expect(tile(page, "Pipelines")).to_have_text("1 of 1")
        expect(page.locator(".hr-state")).to_have_text("running")
        (name, run), *_ = client.get("/status").json()["pipelines"].items()
        assert name.startswith("1: test_page_pipelines.py:") and run["kind"] == "stream"
        card = page.locator(f'section[data-view="{name}"]')
        expect(card).to_contain_text("stream · 1,200 micro-batches, the last in 410 ms · 1,975/s · 12 behind")
        expect(card).to_contain_text("sum has not fired 12:00 to 12:01 of 'amy': waits for the watermark to pass 12:01")
        nodes = card.locator(".hr-across .hr-node text").all_text_contents()
        assert nodes == ["visits", "parse", "sum", "out"]
        assert card.locator(".hr-across .hr-edge text").all_text_contents() == ["40", "38"]
        assert [(row[0], number(row[4]), number(row[5])) for row in rows(page, f"stages {name}")] == [("sum", 5, 1)]
        assert rows(page, f"metrics {name}") == [
            ["parse", SCRIPT, "gauge", "0.5", "", "", "", ""],
            ["parse", "bad", "counter", "3", "", "", "", ""],
            ["parse", "size", "distribution", "10", "4", "1", "2.5", "4"],
        ]
        assert number(tile(page, "Bad records").inner_text()) == 2
        lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith("headrace_")]
        samples = dict(line.rsplit(" ", 1) for line in lines)
        place = f'name="{{}}",pipeline="{name}",transform="parse"'
        assert samples[f"headrace_metric_counter_total{{{place.format('bad')}}}"] == "3.0"
        assert samples[f"headrace_metric_distribution_sum{{{place.format('size')}}}"] == "10.0"
        assert samples[f"headrace_metric_distribution_max{{{place.format('size')}}}"] == "4.0"
        assert samples[f'headrace_pipeline_watermark_lag_seconds{{pipeline="{name}",stage="sum"}}'] == "2.0"
        bad = f'headrace_pipeline_bad_records_total{{pipeline="{name}",reason="malformed",source="visits"}}'
        assert samples[bad] == "2.0"

        running.current.state = "failed"
        add(runs, ScriptedHandle(Status("done"), {"parse": {"in": 1, "out": 1}}))
        runs.end()
        expect(page.get_by_text("The script is over.")).to_be_visible()
        expect(page.locator(".hr-state")).to_have_text("1 of 2 pipelines failed")
        expect(card.locator(".hr-error")).to_have_text(f"'parse' failed on the element {SCRIPT}")
        titles = page.locator("section[data-view] .hr-head .hr-title").all_inner_texts()
        assert [title.split(":")[0] for title in titles] == ["2", "1"]  # the newest first

        page.get_by_role("tab").nth(1).click()
        assert rows(page, "bad") == [[name, "visits", "malformed", "2"]]
        assert [row[1:] for row in rows(page, "letters")] == [
            [name, "visits/0@7", "malformed", "it is not a JSON object", SCRIPT]
        ]
        assert page.evaluate("window.pwned") is None
        assert client.post(f"/views/{name}/batch", json={}).status_code == 404


def test_a_script_has_no_views_and_shows_the_last_runs() -> None:
    runs = Runs(clock=lambda: NOON)
    with pytest.raises(ViewError, match="a script has no view 'hits'; headrace up runs views"):
        runs.compute("hits", incremental=False)
    for _ in range(60):
        add(runs, ScriptedHandle(Status("done")))
    assert [name.split(":")[0] for name in runs.status()["pipelines"]] == [str(number) for number in range(11, 61)]
