"""Operations of a running system over HTTP, with a scripted system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest

from headrace.server import Server, Service
from headrace.views.errors import ViewError
from tests.server.conftest import LIMITS


@dataclass
class Scripted:
    """Has one job at a time, and two dead letters."""

    jobs: list[dict[str, Any]] = field(default_factory=list)

    def status(self) -> dict[str, Any]:
        return {"pid": 7, "jobs": self.jobs}

    def compute(self, view: str, *, incremental: bool) -> dict[str, Any]:
        if self.jobs:
            raise ViewError(f"a batch of view {view!r} is under way; wait for it")
        self.jobs.append({"id": 1, "view": view, "incremental": incremental})
        return self.jobs[-1]

    def dead_letters(self, limit: int) -> list[dict[str, Any]]:
        return [{"position": f"visits/0@{at}"} for at in (7, 3)][:limit]


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with (
        Server(replace(service, operations=Scripted()), port=0, limits=LIMITS) as server,
        httpx.Client(base_url=server.url) as client,
    ):
        yield client


def test_a_batch_begins_once(client: httpx.Client) -> None:
    begun = client.post("/views/visitors/batch", json={"incremental": True})
    assert (begun.status_code, begun.json()) == (202, {"id": 1, "view": "visitors", "incremental": True})
    assert client.get("/status").json() == {"pid": 7, "jobs": [begun.json()]}
    again = client.post("/views/visitors/batch", json={})
    assert (again.status_code, again.json()) == (
        409,
        {"reason": "a batch of view 'visitors' is under way; wait for it"},
    )


@pytest.mark.parametrize("body", [{"incremental": "yes"}, {"incremental": 1}, {"full": True}])
def test_a_batch_is_asked_for_by_its_name(client: httpx.Client, body: dict[str, Any]) -> None:
    assert client.post("/views/visitors/batch", json=body).status_code == 400
    assert client.get("/status").json()["jobs"] == []


def test_dead_letters_are_newest_first_and_as_many_as_asked_for(client: httpx.Client) -> None:
    assert client.get("/deadletters?limit=1").json() == {"dead_letters": [{"position": "visits/0@7"}]}
    assert len(client.get("/deadletters").json()["dead_letters"]) == 2
    assert client.get("/deadletters?limit=0").status_code == 400
    for wrong in ("1001", "9" * 5_000, "-1", "1.5", "٣"):
        assert client.get("/deadletters", params={"limit": wrong}).status_code == 400


def test_a_store_alone_has_no_operations(started: Any) -> None:
    assert started().get("/status").status_code == 404
