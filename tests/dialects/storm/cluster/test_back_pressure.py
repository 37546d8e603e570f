"""A slow bolt slows its spouts: hosts, tasks and ackers as they are, on a clock that only the bolt moves."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from headrace import storm
from headrace.dialects.storm.task.acker import COMPLETE
from tests.dialects.storm.cluster.test_spouthost import SECOND, Numbers, World, outcome_at
from tests.dialects.storm.driver import Driver

PENDING = 50


class Clock:
    now: ClassVar[int] = 0


class Slow(storm.BasicBolt):
    """Takes its time for every tuple."""

    def __init__(self, each: int) -> None:
        self.each = each

    def execute(self, tup: storm.Tuple) -> None:
        Clock.now += self.each


@pytest.mark.parametrize("each", [10_000, 200_000])
def test_a_spout_is_as_fast_as_the_slowest_bolt(each: int, tmp_path: Path) -> None:
    """The spout would emit for ever without pause; no time passes for it."""
    Clock.now = 0
    world = World(tmp_path, Numbers(), Slow(each), max_spout_pending=PENDING)
    host, driver = world.host(), Driver(world.topology, world.config)
    looks: list[tuple[int, int, int]] = []

    def look() -> None:
        looks.append((Clock.now, host.counts.emitted, host.counts.acked))

    offset = 0
    while Clock.now < 20 * SECOND:
        for _ in range(3):  # as often as it likes
            host.turn()
            look()
        batch = list(host.log.read(world.read_to))
        ended = driver.batch({"numbers": [each.values for each in batch]}, Clock.now)
        world.read_to += len(batch)
        assert {verdict for _, _, verdict in ended} == {COMPLETE}
        host.outcomes.put(outcome_at(offset, acked=tuple(place for _, place, _ in ended)))
        offset += 1
    assert all(emitted <= acked + PENDING for _, emitted, acked in looks)
    assert any(emitted == acked + PENDING for _, emitted, acked in looks)
    seconds, emitted, acked = looks[-1]
    assert acked == seconds // each  # what the bolt has done, and no more
    assert emitted == acked + PENDING
