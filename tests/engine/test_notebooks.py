"""Notebooks and prompts show pipelines as their stages, and handles as their progress, up to date."""

from __future__ import annotations

import re
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.engine.handle import LiveDisplay, Status, StreamStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_pipeline_shows_its_stages_and_may_still_change() -> None:
    p = hr.Pipeline()
    assert repr(p) == "<Pipeline of 0 transforms>"
    words = p | "<words>" >> hr.Create(["a"])
    lines = ["<Pipeline of 1 transform>", "read  <words>: Create(1 elements)"]
    assert repr(p).splitlines() == lines
    drawing, stages = p._repr_html_().split("</svg>")
    assert stages == "<pre>&lt;Pipeline of 1 transform&gt;\nread  &lt;words&gt;: Create(1 elements)</pre>"
    assert re.findall("<text[^>]*>([^<]*)</text>", drawing) == ["&lt;words&gt;"]
    _ = words | "grouped" >> hr.GroupByKey()
    assert p._repr_html_().count("hr-edge") == 1
    assert "it cannot run as it is: 'grouped'" in repr(p) and "needs pairs" in repr(p)
    _ = p | "numbers" >> hr.Rate(1)
    assert repr(p).startswith("<Pipeline of 3 transforms>")


def test_a_handle_shows_its_progress(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    _ = p | hr.Create([1]) | hr.Collect()
    handle = p.run()
    handle.wait()
    assert repr(handle) == "<BatchHandle: done>" and handle._repr_html_() == "<pre>done</pre>"  # type: ignore[attr-defined]
    assert str(Status("running", "write <a>", 3, 8)) == "running, write <a>, 3 of 8 tasks"


class Run(LiveDisplay):
    """A run whose status is told."""

    def __init__(self, *statuses: Status | Exception) -> None:
        self.statuses = list(statuses)

    def status(self) -> Status:
        now = self.statuses[0]
        return Status("failed") if isinstance(now, Exception) else now

    def wait(self, timeout: float | None = None) -> Status:
        assert timeout is not None, "a notebook would not answer"
        if len(self.statuses) > 1:
            del self.statuses[0]
        if isinstance(error := self.statuses[0], Exception):
            raise error
        return self.statuses[0]


@pytest.mark.parametrize("last", [Status("done"), ValueError("<oops>")])
def test_a_notebook_is_kept_up_to_date_until_the_end(last: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    ended = threading.Event()

    class Display:
        def update(self, html: str) -> None:
            shown.append(html)
            if "running" not in html:
                ended.set()

    def display(html: str, *, display_id: bool) -> Display:
        assert display_id
        shown.append(html)
        return Display()

    notebook = types.ModuleType("IPython.display")
    notebook.HTML, notebook.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    Run(Status("running", "<read>"), StreamStatus("running", batches=3), last)._ipython_display_()
    assert ended.wait(60)
    end = "done" if isinstance(last, Status) else "failed"
    assert shown == ["<pre>running, &lt;read&gt;</pre>", "<pre>running, 3 batches</pre>", f"<pre>{end}</pre>"]
