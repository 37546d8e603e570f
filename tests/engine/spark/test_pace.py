"""Back pressure as a pure function, with batches whose time is worked out, not measured."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.spark.pace import Pace


@dataclass
class Machine:
    """Takes a fixed time for a batch and some for each unit, and has a backlog."""

    fixed: float
    each: float
    backlog: int

    def batch(self, pace: Pace) -> tuple[int, float]:
        units = min(pace.limit, self.backlog)
        self.backlog -= units
        return units, self.fixed + units * self.each


def run(machine: Machine, pace: Pace, batches: int) -> list[tuple[int, float]]:
    """How much each batch read, and how long it took."""
    done = []
    for _ in range(batches):
        done.append(machine.batch(pace))
        pace = pace.after(*done[-1])
    return done


def test_a_burst_is_spread_over_batches_of_the_time_that_was_set() -> None:
    done = run(Machine(fixed=0.4, each=0.01, backlog=5_000), Pace(target=5.0), 25)
    assert [units for units, _ in done[:9]] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert sum(units for units, _ in done) == 5_000
    assert all(4.8 < took < 5.02 for _, took in done[10:18])


@given(st.floats(0, 0.5), st.floats(1e-4, 0.05))
def test_batches_approach_the_time_whatever_the_machine(fixed: float, each: float) -> None:
    """To within a unit's time: batches cannot be finer."""
    units, took = run(Machine(fixed, each, 10**9), Pace(target=1.0), 60)[-1]
    assert abs(took - 1.0) < 0.02 + 2 * each
    assert units >= 1


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 100)), max_size=50), st.integers(1, 500))
def test_bounds(batches: list[tuple[int, float]], most: int) -> None:
    pace = Pace(target=2.0, most=most)
    for units, took in batches:
        after = pace.after(units, took)
        assert 1 <= after.limit <= min(2 * pace.limit, most) or after == pace
        assert took > 2.0 or after.limit >= pace.limit or units > pace.limit
        pace = after


def test_a_machine_that_gets_slow_gets_less_at_once_and_more_again_by_and_by() -> None:
    pace = Pace(target=1.0, limit=100)
    pace = pace.after(100, 10.0)
    assert pace.limit == 10
    limits = []
    for _ in range(4):
        pace = pace.after(pace.limit, 0.1)
        limits.append(pace.limit)
    assert limits == [20, 40, 80, 160]


def test_quiet_times_tell_nothing() -> None:
    pace = Pace(target=1.0, limit=8)
    assert pace.after(0, 0.1) == pace.after(3, 0.1) == pace
    assert pace.after(3, 3.0).limit == 1
