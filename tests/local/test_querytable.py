"""Tables of queries: all tasks of a micro-batch see the same ones, whenever they look and however often they run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.local.querytable import QueryTable
from tests.scale import examples


@examples(300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["log", "task", "add", "end", "reopen"]),
            st.booleans(),  # whether a batch is logged while the writer looks, before it or right behind it
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_all_tasks_of_a_batch_see_the_same_queries(steps: list[tuple[str, bool, bool]]) -> None:
    path = Path(tempfile.mkdtemp()) / "queries"
    writer, worker = QueryTable(path), QueryTable(path)
    logged = [0]
    seen: dict[int, list[int]] = {}
    alive: list[int] = []

    for step, before, behind in steps:

        def next_batch(before: bool = before, behind: bool = behind) -> int:
            if before:
                logged.append(logged[-1] + 1)
            number = logged[-1] + 1
            if behind:
                logged.append(number)
            return number

        if step == "log":
            logged.append(logged[-1] + 1)
        elif step == "task":  # of the last batch, which is the only one that may run
            worker = QueryTable(path) if before else worker
            worker.refresh()
            numbers = [query.number for query in worker.active(logged[-1])]
            assert seen.setdefault(logged[-1], numbers) == numbers
            settled = [query.number for query in worker.active(None)]
            assert logged[-1] < worker.settled or settled == numbers
        elif step == "add":
            alive.append(writer.add([["a"]], "text", next_batch))
        elif step == "end" and alive:
            writer.end(alive.pop(0), next_batch)
        elif step == "reopen":
            writer = QueryTable(path)
            writer.refresh()
            assert [query.number for query in writer.active(None)] == alive


def test_a_query_counts_in_whole_micro_batches(tmp_path: Path) -> None:
    writer, reader = (QueryTable(tmp_path / "queries") for _ in range(2))
    assert [writer.add([["a"]], "one", lambda: 3), writer.add([["b"]], "two", lambda: 5)] == [0, 1]
    writer.end(0, lambda: 7)
    with open(tmp_path / "queries", "ab") as file:
        file.write(b'{"query": 0, "en')  # a process died
    reader.refresh()
    counted = {batch: [query.text for query in reader.active(batch)] for batch in (2, 4, 6, 7, None)}
    assert counted == {2: [], 4: ["one"], 6: ["one", "two"], 7: ["two"], None: ["two"]}
    assert reader.settled == 7
    writer.compact()
    assert writer.add([["c"]], "three", lambda: 9) == 2  # numbers are not used again
    reader.refresh()
    assert [(query.number, query.constants) for query in reader.active(9)] == [(1, (["b"],)), (2, (["c"],))]
