"""Which tasks get which tuples."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import storm
from headrace.dialects.storm.api.groupings import (
    All,
    ByFields,
    Custom,
    Global,
    Grouping,
    LocalOrShuffle,
    NoGrouping,
    PartialKey,
    Shuffle,
)
from headrace.dialects.storm.task.choosers import make_chooser
from headrace.dialects.storm.task.tuplecolumns import decode_column, encode_column, hash_columns, hash_keys


def chosen(grouping: Grouping, rows: list[tuple[Any, ...]], tasks: int) -> list[tuple[int, int]]:
    """(row, task) of each copy."""
    fields = tuple("abc"[: len(rows[0])])
    columns = [encode_column(name, values) for name, values in zip(fields, zip(*rows, strict=True), strict=True)]
    result = make_chooser(grouping, fields, tasks, 0).choose(columns, len(rows), None)
    numbers = range(len(rows)) if result.rows is None else result.rows.tolist()
    return list(zip(numbers, result.tasks.tolist(), strict=True))


@pytest.mark.parametrize("grouping", [Shuffle(), LocalOrShuffle(), NoGrouping()])
@given(batches=st.lists(st.integers(0, 20), max_size=8), tasks=st.integers(1, 7), source=st.integers(0, 9))
def test_shuffle_gives_equal_counts_over_all_batches(
    grouping: Grouping, batches: list[int], tasks: int, source: int
) -> None:
    chooser, counts = make_chooser(grouping, ("a",), tasks, source), Counter(dict.fromkeys(range(tasks), 0))
    for count in batches:
        counts.update(chooser.choose([], count, None).tasks.tolist())
        memory, chooser = chooser.memory, make_chooser(grouping, ("a",), tasks, source)
        chooser.memory = memory
        assert max(counts.values()) - min(counts.values()) <= 1


VALUES = st.one_of(
    st.text(max_size=3), st.integers(-3, 3), st.booleans(), st.none(), st.floats(), st.binary(max_size=2)
)


@given(rows=st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=30), tasks=st.integers(1, 9))
def test_equal_values_go_to_the_same_task(rows: list[tuple[Any, ...]], tasks: int) -> None:
    for fields, key in ((("a",), lambda row: row[0]), (("c", "a"), lambda row: (row[2], row[0]))):
        task_of: dict[Any, set[int]] = defaultdict(set)
        for row, task in chosen(ByFields(fields), rows, tasks):
            task_of[key(rows[row])].add(task)
        assert all(len(seen) == 1 for seen in task_of.values())
        # alone or among others, which may make another column of it
        alone = [chosen(ByFields(fields), [row], tasks)[0][1] for row in rows]
        assert alone == [task for _, task in chosen(ByFields(fields), rows, tasks)]


def test_fields_grouping_is_the_same_in_every_process() -> None:
    words = [f"word{number}" for number in range(50)]
    code = (
        "from tests.dialects.storm.task.test_choosers import ByFields, chosen\n"
        f"print(chosen(ByFields(('a',)), [(w,) for w in {words!r}], 12))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    here = chosen(ByFields(("a",)), [(word,) for word in words], 12)
    assert done.stdout.strip() == repr(here)
    assert len({task for _, task in here}) == 12


def test_all_and_global() -> None:
    rows = [("x",), ("y",)]
    assert sorted(chosen(All(), rows, 3)) == [(row, task) for row in range(2) for task in range(3)]
    assert chosen(Global(), rows, 3) == [(0, 0), (1, 0)]


def test_partial_key_has_two_tasks_for_a_key_and_balances_them() -> None:
    rng = np.random.default_rng(7)
    rows = [(f"w{min(number, 50)}",) for number in rng.zipf(1.5, 4_000).tolist()]
    tasks_of: dict[str, set[int]] = defaultdict(set)
    for row, task in chosen(PartialKey(("a",)), rows, 8):
        tasks_of[rows[row][0]].add(task)
    assert {len(tasks) for tasks in tasks_of.values()} <= {1, 2} and len(tasks_of["w1"]) == 2
    loads = Counter(task for _, task in chosen(PartialKey(("a",)), rows, 8))
    by_fields = Counter(task for _, task in chosen(ByFields(("a",)), rows, 8))
    assert max(loads.values()) < 0.7 * max(by_fields.values())


def test_partial_key_goes_on_from_its_memory() -> None:
    grouping, column = PartialKey(("a",)), encode_column("a", [str(number % 7) for number in range(100)])
    whole = make_chooser(grouping, ("a",), 5, 0).choose([column], 100, None).tasks.tolist()
    parts, memory = [], None
    for start in (0, 40):
        chooser = make_chooser(grouping, ("a",), 5, 0)
        chooser.memory = memory or chooser.memory
        size = 60 if start else 40
        parts += chooser.choose([(column[0], column[1].slice(start, size))], size, None).tasks.tolist()
        memory = chooser.memory
    assert parts == whole


class FirstLetter(storm.CustomGrouping):
    def choose(self, values: tuple[Any, ...], tasks: int) -> list[int]:
        return [ord(letter) - ord("a") for letter in values[0]]


def test_a_custom_grouping_names_none_one_or_several_tasks() -> None:
    assert chosen(Custom(FirstLetter()), [("",), ("b",), ("ca",)], 3) == [(1, 1), (2, 2), (2, 0)]
    with pytest.raises(ValueError, match=r"FirstLetter.choose returned 25 for \('z',\); tasks are numbered from 0 to"):
        chosen(Custom(FirstLetter()), [("z",)], 3)


@given(values=st.lists(st.one_of(VALUES, st.integers(), st.lists(st.integers(), max_size=2)), max_size=10))
def test_columns_come_back_as_they_were(values: list[Any]) -> None:
    field, column = encode_column("x", values)
    back = decode_column(field, column)
    assert repr(back) == repr(values)  # NaN is not equal to itself, and True is equal to 1


@pytest.mark.parametrize("distinct", [1, 40, 900, 5_000])
def test_columns_of_many_rows_come_back_and_hash_as_their_values(distinct: int) -> None:
    words = [f"wörd{number * 7919 % distinct}" for number in range(5_000)]
    field, column = encode_column("x", words)
    back = decode_column(field, column)
    assert back == words
    assert hash_columns([(field, column)]).tolist() == hash_keys(words).tolist()
    if distinct < 100:
        assert len(set(map(id, back))) == distinct  # equal texts are one object
