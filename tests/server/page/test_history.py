"""The history of polls: what it forgets, and which points it leaves out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.server.page.history import History


def test_history_forgets() -> None:
    history = History(max_polls=2)
    for second in range(4):
        name = "old" if second < 2 else "new"
        history.add({"now": f"1970-01-01T00:00:0{second}Z", "topics": {name: {"records_per_second": 1.0}}, "views": {}})
    assert history.lines("in") == {"new": [[2000.0, 1.0], [3000.0, 1.0]]}


@given(st.integers(0, 700))
def test_a_line_of_many_polls_is_thinned_the_same_way_each_time(polls: int) -> None:
    history = History()

    def poll(number: int) -> list[list[float | None]]:
        now = f"1970-01-01T00:{number // 60:02}:{number % 60:02}Z"
        history.add({"now": now, "topics": {"visits": {"records_per_second": number}}, "views": {}})
        return history.lines("in")["visits"]

    for number in range(polls):
        before = poll(number)
    after = poll(polls)
    assert len(after) <= 101 and after[-1][1] == polls
    if polls >= 300:
        assert len([point for point in after if point not in before]) <= 1
