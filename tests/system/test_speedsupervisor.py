"""A speed layer that fails is tried again, later and later, and says so until it has done something."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.engine.handle import Status, StreamStatus
from headrace.engine.stream.handle import StreamHandle
from headrace.model.times import SECOND
from headrace.system.speedsupervisor import SpeedSupervisor


class Scripted(StreamHandle):
    """A stream that does as it is current."""

    def __init__(self) -> None:
        self.current = StreamStatus("running")
        self.failure: Exception | None = None

    def status(self) -> StreamStatus:
        return self.current

    def wait(self, timeout: float | None = None) -> Status:
        if self.failure is not None:
            raise self.failure
        return self.current

    def fail(self, why: str) -> None:
        self.current, self.failure = StreamStatus("failed"), RuntimeError(why)


@dataclass
class Layer:
    """A layer whose starts are counted; `refuses` is what a start fails with."""

    started: list[Scripted] = field(default_factory=list)
    refuses: str | None = None
    view: Any = field(default_factory=lambda: SimpleNamespace(name="visitors"))

    def start(self) -> Scripted:
        if self.refuses:
            raise RuntimeError(self.refuses)
        self.started.append(Scripted())
        return self.started[-1]


@pytest.fixture
def layer() -> Layer:
    return Layer()


@pytest.fixture
def clock() -> list[int]:
    return [0]


@pytest.fixture
def speed(layer: Layer, clock: list[int]) -> SpeedSupervisor:
    return SpeedSupervisor(cast(Any, layer), lambda: clock[0])


def test_it_is_started_once(speed: SpeedSupervisor, layer: Layer) -> None:
    assert speed.state == "stopped"
    for _ in range(3):
        speed.poll()
    assert len(layer.started) == 1
    assert (speed.state, speed.error) == ("running", None)


def test_a_failure_is_told_until_a_batch_is_done(speed: SpeedSupervisor, layer: Layer, clock: list[int]) -> None:
    speed.poll()
    layer.started[-1].fail("the store is gone")
    speed.poll()
    assert (speed.state, speed.error) == ("failed", "the store is gone")
    clock[0] += SECOND
    speed.poll()
    speed.poll()
    assert len(layer.started) == 2
    assert speed.state == "failed"
    layer.started[-1].current = StreamStatus("running", batches=1)
    speed.poll()
    assert (speed.state, speed.error) == ("running", None)


def test_waits_grow_to_a_minute(speed: SpeedSupervisor, layer: Layer, clock: list[int]) -> None:
    layer.refuses = "no broker"
    tried = []
    while clock[0] < 300 * SECOND:
        before = speed.error
        speed.error = None
        speed.poll()
        if speed.error is not None:
            tried.append(clock[0] // SECOND)
        speed.error = speed.error or before
        clock[0] += SECOND
    waits = [later - sooner for sooner, later in pairwise(tried)]
    assert waits[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert set(waits[6:]) == {60}
