"""Tests the modes of writing tables. They are compared with a few lines of Python, over random panes."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.connectors.tablewriter import TableBatch, write_together
from headrace.model.errors import PipelineError
from headrace.model.sinks import WindowedValue
from tests.edges.tabling import Click, Hit, at, contents, execute, failing, writer, written
from tests.scale import examples


def test_appended_retractions_have_a_sign(database: str) -> None:
    panes = [at(("a", 1)), at(("a", 1), back=True), at(("a", 2), index=1)]
    rows = written(database, panes, retracting=True, columns=["word", "n"])
    assert rows == Counter([(1, 1, "a"), (1, -1, "a"), (2, 1, "a")])


def test_a_sign_of_the_elements_own_is_refused(sqlite: str) -> None:
    with pytest.raises(PipelineError, match="elements have a column 'sign', which marks retractions"):
        writer(sqlite, known=pa.schema({"sign": pa.int64()}), retracting=True)


def test_the_last_pane_of_the_last_window_replaces_the_others_however_they_come(database: str) -> None:
    panes = [
        at(Hit("a", n), start, start + 60, index=i) for n, (start, i) in enumerate([(0, 0), (0, 1), (60, 0), (60, 2)])
    ]
    for seed in range(4):
        random.Random(seed).shuffle(panes)
        assert written(database, panes, key="url", mode="upsert", stream=str(seed)) == Counter([(3, "a")])


def test_without_windows_the_latest_replaces_the_others_and_of_equally_late_ones_the_last(database: str) -> None:
    rows = [at(Hit("a", 1), time=5), at(Hit("a", 2), time=9), at(Hit("a", 3), time=9), at(Hit("a", 4), time=7)]
    assert written(database, rows, key="url", mode="upsert", window=hr.GlobalWindows()) == Counter([(3, "a")])


def test_what_is_taken_back_and_not_replaced_is_deleted_unless_another_row_is_in_its_place(database: str) -> None:
    batches = [
        [at(Hit("a", 1)), at(Hit("b", 1))],
        [at(Hit("b", 2), 60, 120)],
        [at(Hit("a", 1), back=True), at(Hit("b", 1), back=True)],
    ]
    assert written(database, *batches, key="url", mode="upsert") == Counter([(2, "b")])


def test_a_table_of_keys_alone_can_be_upserted(database: str) -> None:
    assert written(database, [at({"k": 1})], [at({"k": 1}), at({"k": 2})], key="k", mode="upsert") == Counter(
        [(1,), (2,)]
    )


@pytest.mark.parametrize("key", [[], ["url"]])
def test_a_retraction_of_a_row_that_is_not_there_is_an_error_and_changes_nothing(database: str, key: Any) -> None:
    to = writer(database, Hit, key=key, mode="retract")
    to.write([at(Hit("a", 1)), at(Hit("b", 2))], 0)
    message = failing(to, [at(Hit("a", 1), back=True), at(Hit("c", 3), back=True), at(Hit("d", 4))], 1)
    assert "a retraction takes back {'url': 'c', 'hits': 3}, which is not in the table 'things'" in message
    assert contents(database) == Counter([(1, "a"), (2, "b")])


def test_one_of_equal_rows_is_taken_away(database: str) -> None:
    known = pa.schema({"a": pa.int64(), "b": pa.string()})
    nothing = at({"a": 1, "b": None})
    back = nothing._replace(retraction=True)
    assert written(database, [nothing] * 3, [back, back], mode="retract", known=known) == Counter([(1, None)])


def test_a_key_that_is_none_is_refused(sqlite: str) -> None:
    to = writer(sqlite, Click, key=["url", "hits"], mode="upsert")
    assert "the key 'hits' is None in {'url': 'a', 'hits': None}" in failing(to, [at(Click("a", None))])


def test_a_key_that_is_there_twice_is_the_databases_error(database: str) -> None:
    message = failing(writer(database, Hit, key="url", mode="retract"), [at(Hit("a", 1)), at(Hit("a", 2))])
    assert "unique" in message.lower() and "url" in message
    assert contents(database) == Counter()


class Step(NamedTuple):
    """A pane of a key and a window: its value, or None if the window has become empty."""

    key: str
    window: int
    value: int | None
    new_batch: bool


STEPS = st.lists(
    st.builds(Step, st.sampled_from("ab"), st.integers(0, 1), st.none() | st.integers(0, 3), st.booleans()), max_size=25
)


def panes(steps: list[Step]) -> list[list[WindowedValue]]:
    """Returns the batches of a stream that retracts: each pane but the first of its window follows a retraction."""
    batches: list[list[WindowedValue]] = [[]]
    last: dict[tuple[str, int], WindowedValue] = {}
    index: Counter[tuple[str, int]] = Counter()
    for step in steps:
        if step.new_batch:
            batches.append([])
        of = step.key, step.window
        if of in last:
            batches[-1].append(last.pop(of)._replace(retraction=True))
        if step.value is not None:
            start = 60 * step.window
            last[of] = at({"k": step.key, "n": step.value}, start, start + 60, index=index[of])
            index[of] += 1
            batches[-1].append(last[of])
    return batches


def test_modes_mean_what_a_dict_and_a_multiset_mean(database: str) -> None:
    known = pa.schema({"k": pa.string(), "n": pa.int64()})
    by_window = ["k", "window_start"]
    writers = {
        "append": writer(database, known=known, retracting=True, table="append"),
        "upsert": writer(database, known=known, stream="b", table="upsert", mode="upsert", key=by_window),
        "retract": writer(database, known=known, stream="c", table="retract", mode="retract"),
        "by_key": writer(database, known=known, stream="d", table="by_key", mode="retract", key=by_window),
    }
    numbers = count()

    @examples(25)
    @given(STEPS, st.randoms(use_true_random=False))
    def hold(steps: list[Step], shuffled: random.Random) -> None:
        execute(database, *(f"DELETE FROM {table}" for table in writers))
        stays: dict[tuple[str, int], int] = {}
        bag: Counter[tuple[str, int]] = Counter()
        signed: Counter[tuple[str, int, int]] = Counter()
        for batch in filter(None, panes(steps)):
            for (key, n), window, back in [(each.value.values(), each.window, each.retraction) for each in batch]:
                signed[key, n, -1 if back else 1] += 1
                bag[key, n] += -1 if back else 1
                if back:
                    del stays[key, window.start]
                else:
                    stays[key, window.start] = n
            number = next(numbers)
            shuffled.shuffle(batch)  # shards are in no order
            for to in writers.values():
                for _ in range(shuffled.choice([1, 2])):  # and a batch may come again
                    size = shuffled.randint(1, len(batch))  # a large one comes in pieces
                    pieces = [batch[at : at + size] for at in range(0, len(batch), size)]
                    write_together([TableBatch(to, partial(iter, pieces), None)], number)
        assert contents(database, "append") == signed
        assert contents(database, "retract") == +bag
        rows = Counter((key, n, start // 10**6) for (key, start), n in stays.items())
        for table in ("upsert", "by_key"):
            stored = contents(database, table)
            assert Counter({(key, n, _second(start)): times for (key, n, _, start), times in stored.items()}) == rows

    hold()
    for to in writers.values():
        to.close()


def _second(bound: Any) -> int:
    instant = dt.datetime.fromisoformat(bound + "+00:00") if isinstance(bound, str) else bound
    return int(instant.timestamp())
