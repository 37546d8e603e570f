"""Values of large groups: a sequence that is read as it comes, again and again, and gone when the group is."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.worker.spilled import SpilledValues

lists = st.lists(st.lists(st.integers(), max_size=4), max_size=5)


@given(lists, st.integers(0, 10))
def test_values_are_a_sequence(parts: list[list[int]], partly: int) -> None:
    expected = [value for part in parts for value in part]
    values = SpilledValues(iter(parts))
    assert list(itertools.islice(values, partly)) == expected[:partly]
    assert list(values) == expected
    assert len(values) == len(expected)
    assert list(reversed(values)) == expected[::-1]
    assert bool(values) == bool(expected)
    assert isinstance(values, Sequence)
    assert values[1:3] == expected[1:3]
    assert values[::-1] == expected[::-1]


@given(lists, st.integers(-12, 12))
def test_positions(parts: list[list[int]], at: int) -> None:
    expected = [value for part in parts for value in part]
    values = SpilledValues(iter(parts))
    if -len(expected) <= at < len(expected):
        assert values[at] == expected[at]
    else:
        with pytest.raises(IndexError, match="position"):
            values[at]


def test_several_readers_at_once() -> None:
    values = SpilledValues(iter([[1, 2], [], [3], [4, 5]]))
    ahead, behind = iter(values), iter(values)
    assert [next(ahead), next(ahead), next(ahead)] == [1, 2, 3]
    assert list(behind) == [1, 2, 3, 4, 5]
    assert list(ahead) == [4, 5]


def test_lists_are_taken_only_when_asked_for() -> None:
    taken = []

    def coming() -> Iterator[list[int]]:
        for number in range(5):
            taken.append(number)
            yield [number]

    values = SpilledValues(coming())
    assert taken == []
    assert values[1] == 1
    assert taken == [0, 1]
    assert 3 in values
    assert taken == [0, 1, 2, 3]


def test_pickled_values_are_a_list() -> None:
    assert pickle.loads(pickle.dumps(SpilledValues(iter([[1], [2]])))) == [1, 2]


def test_discarded_values_say_so() -> None:
    values = SpilledValues(iter([[1], [2]]))
    values.read_all()
    values.discard()
    with pytest.raises(RuntimeError, match="only while its element is worked on"):
        list(values)
