"""Tests in several processes at once, with pytest-xdist: those that share a server or a module stay in one.

Each process has a Spark session of its own: with one for all, the other process would be done long before.

pytest-xdist 3.8 has groups of its own (`--dist loadgroup`), but takes no notice of them with pytest 9.2.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SERVERS: Final = ("broker", "spark_cluster", "postgresql_server", "browser")
"""Fixtures that start what many tests share: a test that uses several goes with the first of them."""


class Workers:
    """The plugin. Workers write down the group of each test that they found, for the scheduler, which finds none."""

    def __init__(self, config: pytest.Config) -> None:
        self._folder = None
        if not hasattr(config, "workerinput"):
            self._folder = tempfile.TemporaryDirectory(prefix="headrace-tests-")
            config.add_cleanup(self._folder.cleanup)

    def pytest_configure_node(self, node: WorkerController) -> None:
        assert self._folder is not None
        node.workerinput["groups"] = f"{self._folder.name}/{node.gateway.id}.json"

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> Scheduler:
        assert self._folder is not None
        return Scheduler(config, log, Path(self._folder.name))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[pytest.Item]) -> None:
        if hasattr(config, "workerinput"):
            groups = {item.nodeid: group_of(item) for item in items}
            long = {groups[item.nodeid] for item in items if item.get_closest_marker("slow")}
            order = {group: place for place, group in enumerate(in_turn(sorted(long - {*SERVERS})))}
            items.sort(key=lambda item: order.get(groups[item.nodeid], len(order)))
            Path(config.workerinput["groups"]).write_text(json.dumps(groups))


def in_turn(long: list[str]) -> list[str]:
    """Returns the order of groups, before those of short tests, which come last: no worker waits long for the other.

    Servers are spread over the modules with long tests: their tests wait for them half of the time, so that one worker
    is to compute meanwhile.
    """
    cuts = [place * len(long) // len(SERVERS) for place in range(len(SERVERS) + 1)]
    return [group for at, name in enumerate(SERVERS) for group in (name, *long[cuts[at] : cuts[at + 1]])]


class Scheduler(LoadScopeScheduling):
    """Gives whole groups to workers, in the order in which they were found."""

    def __init__(self, config: pytest.Config, log: Producer, folder: Path) -> None:
        super().__init__(config, log)
        self._folder, self._groups = folder, dict[str, str]()
        config.option.loadscopereorder = False  # by how many tests a group has, which tells nothing of its time

    def schedule(self) -> None:
        if not self._groups:
            self._groups = json.loads(next(self._folder.glob("*.json")).read_text())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]


def group_of(item: pytest.Item) -> str:
    """The server that a test shares with others, or its module."""
    fixtures = {*getattr(item, "fixturenames", ())}
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    if any(isinstance(value, str) and value == "postgresql" for value in parameters):
        fixtures.add("postgresql_server")  # the fixture that has this parameter asks for it
    return next((name for name in SERVERS if name in fixtures), item.nodeid.partition("::")[0])
