"""The dashboard and the alert rules in `deploy/`: whatever they ask for is what the server really exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from headrace.server.routes.metrics import Metrics
from headrace.server.service import Service

DEPLOY = Path(__file__).parents[1] / "deploy"
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
}
SCRAPED = {"instance", "job"}
"""Labels that Prometheus itself adds."""


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The names of all series of a server with pipelines and topologies, and their labels."""
    operations: Any = SimpleNamespace(status=lambda: {"views": {}})
    topologies: Any = SimpleNamespace(published=lambda: None)
    metrics = Metrics(Service({}, {}, operations=operations, topologies=topologies))
    metrics.count_records("visits", 1)
    metrics.count_bad_lines("visits", 1)
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        labels = {*getattr(family, "_labelnames", ()), *(name for sample in family.samples for name in sample.labels)}
        for suffix in SUFFIXES[family.type]:
            found[family.name + suffix] = labels | SCRAPED | ({"le"} if suffix == "_bucket" else set())
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """The expressions of panels and rules, each with a text that names series' labels."""
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], " ".join(re.findall(r"{{(\w+)}}", target["legendFormat"]))
    for rule in rules():
        texts = " ".join(rule["annotations"].values())
        yield rule["expr"], " ".join(re.findall(r"\$labels\.(\w+)", texts))


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_name_and_label_is_exported(exported: dict[str, set[str]]) -> None:
    for expression, shown in expressions():
        names = set(re.findall(r"\b(?:headrace_\w+|up)\b", expression))
        assert names, expression
        known = set[str]().union(*(exported[name] for name in names if name != "up"), SCRAPED)
        assert not names - exported.keys() - {"up"}, expression
        selected = {
            label for part in re.findall(r"{([^}]*)}", expression) for label in re.findall(r"(\w+)\s*[=!]", part)
        }
        grouped = {
            label for part in re.findall(r"\b(?:by|on) ?\(([^)]*)\)", expression) for label in re.findall(r"\w+", part)
        }
        assert {*selected, *grouped, *shown.split()} <= known, expression
        if aggregated := re.findall(r"\bby \(([^)]*)\)", expression):  # only these labels are left to show
            assert set(shown.split()) <= {label for part in aggregated for label in re.findall(r"\w+", part)}, (
                expression
            )


def test_counters_are_rates_and_gauges_are_not(exported: dict[str, set[str]]) -> None:
    for expression, _ in expressions():
        for name in re.findall(r"\bheadrace_\w+", expression):
            counted = re.search(rf"(?:rate|increase)\({name}\b", expression) is not None
            offsets = name == "headrace_topic_next_offset"  # a gauge that only grows
            assert counted == (name.endswith(("_total", "_bucket", "_sum", "_count")) or offsets), expression


def test_rules_say_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 10
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "warn") and {*rule["annotations"]} == {"summary", "description"}


def test_the_dashboard_is_complete() -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
